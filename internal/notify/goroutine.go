package notify

import "sync/atomic"

var goroutines atomic.Uint32

// Goroutine notes that the caller has made a goroutine ready that waited for an event.
func Goroutine() { goroutines.Add(1) }

// Goroutines returns the number of calls of Goroutine in this process, modulo 2^32. A goroutine that has made others
// ready and goes on without a wait compares two of its results, and calls runtime.Gosched if they differ. Otherwise the
// first of them waits until another thread takes it over from the caller's P. The runtime delays that by usleep(3), in
// which Linux sleeps for more than 50 µs.
func Goroutines() uint32 { return goroutines.Load() }
