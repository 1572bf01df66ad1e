//go:build !linux

package engine

import "time"

// yieldCPU lets other threads of the machine run, where that is possible.
func yieldCPU() {}

func napThread() { time.Sleep(time.Microsecond) }
