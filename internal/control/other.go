//go:build !linux

package control

import (
	"fmt"
	"syscall"
)

var errSystem = fmt.Errorf("control: programs cannot be looked into on this system, which has no abstract sockets: %w", syscall.EOPNOTSUPP)

// Processes lists the sockets of the processes that answer here: none on this system.
func Processes() ([]string, error) { return nil, errSystem }

// Reports asks every process for its report.
func Reports(bool) ([]Report, []Silent, error) { return nil, nil, errSystem }

// Capture asks a process for the packets of a device.
func Capture(_, _, _ string) (*Stream, error) { return nil, errSystem }

// An Announcement is where programs call a capture.
type Announcement struct{ Name string }

// A Call is what a program sends by itself.
type Call struct {
	Process, Device string
	*Stream
}

// Announce has programs call a capture.
func Announce(func(*Call)) (*Announcement, error) { return nil, errSystem }

// Close ends the announcement.
func (*Announcement) Close() {}
