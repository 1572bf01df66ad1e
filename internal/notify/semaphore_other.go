//go:build !linux

package notify

import "syscall"

// Semaphore counts events in a descriptor of the program, which this system does not have.
type Semaphore struct{}

// NewSemaphore returns EOPNOTSUPP.
func NewSemaphore(int) (Semaphore, error) { return Semaphore{}, syscall.EOPNOTSUPP }

// Add does nothing.
func (*Semaphore) Add(int) {}

// Remove does nothing.
func (*Semaphore) Remove(int) {}

// Popped does nothing.
func (*Semaphore) Popped(bool) {}
