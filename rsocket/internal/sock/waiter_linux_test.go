package sock

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// A sleeper wakes at once: the bell has rung when Wake returns. One that is to wake later wakes too.
func TestBellOfASleeper(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // another goroutine does not ring it meanwhile
	bell := must(notify.New())(t)
	defer bell.Close()
	rung := func(timeout int) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(bell.Num()), Events: unix.POLLIN}}, timeout)
		return n == 1 && err == nil
	}
	for i := range 20 {
		w := NewSleeper(bell, false)
		waits := 0
		defer func() {
			if waits != 1 {
				t.Errorf("sleep %d waits %d times", i, waits)
			}
		}()
		w.Sleep(func() {
			waits++
			if rung(0) {
				t.Error("the bell has rung before Wake")
			}
			if w.Wake(); !rung(0) {
				t.Error("the bell has not rung when Wake returns")
			}
		})
	}
	w := NewSleeper(bell, true)
	for range 2 {
		w.Sleep(func() {
			w.Wake()
			for !rung(0) {
				runtime.Gosched()
			}
		})
		if rung(0) || len(w.rung) != 0 {
			t.Errorf("after the sleep the bell rings: %v; %d tokens of who has rung it are left", rung(0), len(w.rung))
		}
	}
	if NewSleeper(bell, false).rung != nil || w.rung == nil {
		t.Error("a goroutine rings the bell of a sleeper that is to wake at once, or not that of one that is to wake later")
	}
}

// A sleeper that no longer watches a stream is not woken by an event of its CQ.
func TestSleeperThatNoLongerWatches(t *testing.T) {
	bell := must(notify.New())(t)
	defer bell.Close()
	st := NewStream(nil, Options{})
	w, stays := NewSleeper(bell, false), NewSleeper(bell, false)
	st.Watch(w)
	st.Watch(stays)
	st.Unwatch(w)
	if st.asleep.wake(); len(w.C) != 0 || len(stays.C) != 1 {
		t.Errorf("%d wake-ups after Unwatch, %d of another sleeper", len(w.C), len(stays.C))
	}
}

// A sleep does not begin if it was ended before, and it may end for a reason of its own. Neither leaves a wake-up, or
// waits for a bell that nobody rings.
func TestSleepWithoutABell(t *testing.T) {
	bell := must(notify.New())(t)
	defer bell.Close()
	for _, later := range []bool{false, true} {
		w := NewSleeper(bell, later)
		waits := 0
		for _, before := range []bool{true, false, true} {
			if before {
				w.Wake()
			}
			w.Sleep(func() { waits++ })
			if len(w.C) != 0 || w.asleep.Load() {
				t.Errorf("later %v, woken before %v: %d wake-ups are left, asleep %v", later, before, len(w.C), w.asleep.Load())
			}
		}
		if waits != 1 {
			t.Errorf("later %v: %d of 3 sleeps wait, want the second one", later, waits)
		}
	}
}
