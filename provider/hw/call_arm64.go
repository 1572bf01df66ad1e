//go:build linux

package hw

import "github.com/ebitengine/purego"

// do calls a function with up to 3 arguments.
func (c *caller) do(fn, a, b, d uintptr) uintptr {
	c.args = [3]uintptr{a, b, d}
	c.result, _, _ = purego.SyscallN(fn, c.args[:]...)
	return c.result
}
