//go:build !linux && !darwin

package notify

import "syscall"

// FD is not available on this system.
type FD struct{}

// New returns EOPNOTSUPP.
func New() (*FD, error) { return nil, syscall.EOPNOTSUPP }

// Num returns -1.
func (*FD) Num() int { return -1 }

// Raise does nothing.
func (*FD) Raise() {}

// Clear does nothing.
func (*FD) Clear() {}

// Close does nothing.
func (*FD) Close() {}
