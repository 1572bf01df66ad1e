//go:build !linux

package kmad

import (
	"fmt"
	"syscall"
)

// Port exists on Linux only: Open fails, and no method is called.
type Port struct{}

var errSystem = fmt.Errorf("the kernel's management datagrams exist on Linux only: %w", syscall.ENOSYS)

// Open returns ENOSYS.
func Open(string, uint8) (*Port, error) { return nil, errSystem }

// Close returns ENOSYS.
func (*Port) Close() error { return errSystem }

// Register returns ENOSYS.
func (*Port) Register(Request) (uint32, error) { return 0, errSystem }

// Unregister returns ENOSYS.
func (*Port) Unregister(uint32) error { return errSystem }

// Send returns ENOSYS.
func (*Port) Send(*Header, []byte) error { return errSystem }

// Next returns ENOSYS.
func (*Port) Next(*Header, []byte) (int, error) { return 0, errSystem }
