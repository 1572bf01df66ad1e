//go:build !linux

package spin

import "time"

// YieldCPU lets other threads run on this core, where that is possible.
func YieldCPU() {}

func shortCall() {}

func switches() int64 { return 0 }

// Nap sleeps briefly.
func Nap() { time.Sleep(time.Microsecond) }

// Rest puts the goroutine to sleep for a millisecond.
func Rest() { time.Sleep(time.Millisecond) }

// CPUTime returns 0: the CPU time is not measured here.
func CPUTime() int64 { return 0 }

// ShortSlice does nothing here.
func ShortSlice() {}
