package spin

import (
	"runtime"
	"testing"
	"time"
)

// TestClock: readings lie between those of the system's clock before and after, up to a few microseconds, and never
// go back by more than that.
func TestClock(t *testing.T) {
	off := 5 * time.Microsecond
	if runtime.GOOS == "windows" {
		off = 20 * time.Millisecond // the system's clock moves in steps of up to 16 ms
	}
	c := NewClock()
	bad, last := 0, int64(0)
	begin := time.Now()
	n := 0
	for ; time.Since(begin) < 100*time.Millisecond || n < 100_000; n++ { // many, also on a busy machine
		before := time.Since(c.start)
		got := c.Now()
		after := time.Since(c.start)
		if time.Duration(got) < before-off || time.Duration(got) > after+off || got < last-int64(off) {
			bad++
		}
		last = got
	}
	if bad > n/50 { // those after an interrupted reading are wrong for a fraction of a millisecond
		t.Errorf("%d of %d readings are wrong", bad, n)
	}
}

// TestClockAfterPause: the time of a pause is counted.
func TestClockAfterPause(t *testing.T) {
	c := NewClock()
	for range 3 {
		time.Sleep(3 * time.Millisecond)
		before := time.Since(c.start)
		if got := time.Duration(c.Now()); got < before-10*time.Microsecond {
			t.Errorf("%v, at %v or later", got, before)
		}
	}
}

func TestClockDoesNotAllocate(t *testing.T) {
	c := NewClock()
	if n := testing.AllocsPerRun(1000, func() { c.Now() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkClock(b *testing.B) {
	c := NewClock()
	for range b.N {
		c.Now()
	}
}

func BenchmarkTimeSince(b *testing.B) {
	start := time.Now()
	for range b.N {
		_ = time.Since(start)
	}
}
