//go:build !linux

package engine

import "time"

// yieldCPU lets other threads of the machine run, where that is possible.
func yieldCPU() {}

func shortCall() {}

func switches() int64 { return 0 }

func napThread() { time.Sleep(time.Microsecond) }
