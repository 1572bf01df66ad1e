package spin

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// switches counts yields during which another thread ran.
func TestSwitchesSeesOtherThreads(t *testing.T) {
	var all, one unix.CPUSet
	runtime.LockOSThread() // for good: the thread ends with the test, and its affinity with it
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Skip(err)
	}
	for i := 0; one.Count() == 0; i++ {
		if all.IsSet(i) {
			one.Set(i)
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Skip(err)
	}
	var stop atomic.Bool
	hogs := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.SchedSetaffinity(0, &one)
		hogs <- err
		for err == nil && !stop.Load() {
		}
	}()
	defer stop.Store(true)
	if err := <-hogs; err != nil {
		t.Skip(err)
	}
	for start := time.Now(); ; {
		before := switches()
		YieldCPU()
		if switches() != before {
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatal("no yield in 10 s let a busy thread on the same core run")
		}
	}
}
