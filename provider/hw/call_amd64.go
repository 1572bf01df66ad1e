//go:build linux

package hw

import "unsafe"

// do calls a function with up to 3 arguments, for posting, polling and requests of events, which do not wait.
//
// The call does not tell Go's scheduler, as calls of cgo and of purego do: it keeps the goroutine's processor until the
// function has returned, and costs a fifth of theirs.
func (c *caller) do(fn, a, b, d uintptr) uintptr {
	c.fn, c.args = fn, [3]uintptr{a, b, d}
	onSystemStack(callCAddress, unsafe.Pointer(c))
	return c.result
}

// callCAddress is the address of callC in call_amd64.s.
var callCAddress unsafe.Pointer

// onSystemStack calls a function of the C library's calling convention on the thread's system stack.
//
//go:noescape
func onSystemStack(fn, arg unsafe.Pointer)
