//go:build !linux

package control

import (
	"fmt"
	"syscall"
)

var errSystem = fmt.Errorf("control: this system has no abstract sockets: %w", syscall.EOPNOTSUPP)

// Processes lists the names of the sockets of processes that answer: none on this system.
func Processes() ([]string, error) { return nil, errSystem }

// Reports asks every process for its report.
func Reports(bool) ([]Report, []Silent, error) { return nil, nil, errSystem }

// Account returns the user whose limits count for the process of a name.
func Account(string) int { return 0 }

// Capture asks a process for the packets of a device.
func Capture(_, _, _ string) (*Stream, error) { return nil, errSystem }

// An Announcement is the socket at which programs call a capture.
type Announcement struct{ Name string }

// A Call is a stream that a program opens by itself.
type Call struct {
	Process, Device string
	*Stream
}

// Announce makes programs call a capture.
func Announce(func(*Call)) (*Announcement, error) { return nil, errSystem }

// Close ends the announcement.
func (*Announcement) Close() {}
