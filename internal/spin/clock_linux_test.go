package spin

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestClockOnAllProcessors: a thread that goes from processor to processor sees the system's clock.
func TestClockOnAllProcessors(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &all) }()
	var cpus []int
	for i := range 1024 {
		if all.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	const off = 5 * time.Microsecond
	c := NewClock()
	bad, n := 0, 0
	for begin := time.Now(); time.Since(begin) < 100*time.Millisecond || n < 200; n++ { // many, also on a busy machine
		var one unix.CPUSet
		one.Set(cpus[n%len(cpus)])
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		before := time.Since(c.start)
		got := time.Duration(c.Now())
		if after := time.Since(c.start); got < before-off || got > after+off {
			bad++
		}
	}
	if bad > n/20 {
		t.Errorf("%d of %d readings are wrong", bad, n)
	}
}
