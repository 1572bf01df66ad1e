//go:build !linux && !darwin

package notify

import "syscall"

// FD does not exist here.
type FD struct{}

// New fails: there is no such descriptor here.
func New() (*FD, error) { return nil, syscall.EOPNOTSUPP }

// Num has no descriptor to tell.
func (*FD) Num() int { return -1 }

// Raise does nothing.
func (*FD) Raise() {}

// Clear does nothing.
func (*FD) Clear() {}

// Close does nothing.
func (*FD) Close() {}
