package engine

import "testing"

// A poller that finds its core wanted by others yields soon, and one that has it for itself seldom.
func TestPatienceFollowsTheCore(t *testing.T) {
	var now, yieldTakes int64
	e := &Engine{manual: true}
	yielded := false
	e.now = func() int64 { // the second look at the clock, after the yield, sees how long that took
		if yielded {
			now += yieldTakes
		}
		yielded = !yielded
		return now
	}
	var p patience
	missesUntilYield := func() int {
		for n := 1; ; n++ {
			before := yielded
			was := now
			p.miss(e)
			if now != was || yielded != before || p.misses.Load() == 0 {
				return n
			}
		}
	}
	yieldTakes = 500
	if n := missesUntilYield(); n != mostPatience {
		t.Errorf("first yield after %d polls, want %d", n, mostPatience)
	}
	yieldTakes = 50_000
	for range 5 {
		missesUntilYield()
	}
	if n := missesUntilYield(); n != leastPatience {
		t.Errorf("on a core that others want: a yield after %d polls, want %d", n, leastPatience)
	}
	yieldTakes = 500
	for range 8 {
		missesUntilYield()
	}
	if n := missesUntilYield(); n != mostPatience {
		t.Errorf("on a core of its own again: a yield after %d polls, want %d", n, mostPatience)
	}
	p.misses.Store(5)
	p.hit()
	if n := missesUntilYield(); n != mostPatience {
		t.Errorf("a hit does not begin the count anew: yield after %d", n)
	}
}
