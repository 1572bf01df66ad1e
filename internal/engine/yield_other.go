//go:build !linux

package engine

// yieldCPU lets other threads of the machine run, where that is possible.
func yieldCPU() {}
