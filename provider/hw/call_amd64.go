//go:build linux

package hw

import "unsafe"

// do calls a function with up to 3 arguments. purego's own calls pass 32 arguments and 8 floating-point registers, and
// take twice as long.
func (c *caller) do(fn, a, b, d uintptr) uintptr {
	c.fn, c.args = fn, [3]uintptr{a, b, d}
	cgocall(callCAddress, unsafe.Pointer(c))
	return c.result
}

// callCAddress is the address of callC in call_amd64.s.
var callCAddress unsafe.Pointer

// cgocall is the runtime's, which purego uses too.
//
//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn, arg unsafe.Pointer) int32
