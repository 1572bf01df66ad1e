//go:build !linux

package control

import (
	"fmt"
	"io"
	"syscall"
)

var errSystem = fmt.Errorf("control: programs cannot be looked into on this system, which has no abstract sockets: %w", syscall.EOPNOTSUPP)

// Processes lists the sockets of the processes that answer here: none on this system.
func Processes() ([]string, error) { return nil, errSystem }

// Reports asks every process for its report.
func Reports() ([]Report, error) { return nil, errSystem }

// Capture asks a process for the packets of a device.
func Capture(string, string) (io.ReadCloser, error) { return nil, errSystem }
