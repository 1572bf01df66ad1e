package spin

import "testing"

// fakeCore is a core whose yields take a given time.
type fakeCore struct {
	now, yieldTakes, turnTakes int64
	yields, turns, naps        int
	awaits                     int
	oneP, stopped              bool // stopped: yields take long because the core is stopped
}

func (c *fakeCore) Clock() int64 { return c.now }
func (c *fakeCore) YieldCore(check bool) bool {
	c.now += c.yieldTakes
	c.yields++
	return check && !c.stopped
}
func (c *fakeCore) Nap()        { c.now += 60_000; c.naps++ }
func (c *fakeCore) Await() bool { c.now += 20_000; c.awaits++; return true }
func (c *fakeCore) Sched() bool {
	c.now += c.turnTakes
	c.turns++
	return !c.oneP
}

// missesUntilYield returns the number of empty polls until the next yield.
func (c *fakeCore) missesUntilYield(p *Budget) int {
	for n, before := 1, c.yields; ; n++ {
		if p.Miss(c); c.yields != before {
			return n
		}
	}
}

// A poller yields often on a contended core and rarely on a core of its own.
func TestYieldsAdaptToTheCore(t *testing.T) {
	c := &fakeCore{yieldTakes: 500}
	var p Budget
	if n := c.missesUntilYield(&p); n != maxMisses {
		t.Errorf("first yield after %d polls, want %d", n, maxMisses)
	}
	c.yieldTakes = 50_000
	for range 5 {
		c.missesUntilYield(&p)
	}
	if n := c.missesUntilYield(&p); n != minMisses {
		t.Errorf("on a contended core: yield after %d polls, want %d", n, minMisses)
	}
	c.yieldTakes = 500
	for range 8 {
		c.missesUntilYield(&p)
	}
	if n := c.missesUntilYield(&p); n != maxMisses {
		t.Errorf("on a free core again: yield after %d polls, want %d", n, maxMisses)
	}
	p.misses.Store(5)
	p.Hit()
	if n := c.missesUntilYield(&p); n != maxMisses {
		t.Errorf("Hit does not reset the count: yield after %d polls", n)
	}
}

// turnsIn returns how often other goroutines run during d ns of empty polls, 100 ns each.
func (c *fakeCore) turnsIn(p *Budget, d int64) int {
	before := c.turns
	for end := c.now + d; c.now < end; c.now += 100 {
		p.Miss(c)
	}
	return c.turns - before
}

// Goroutines that wait for the poller's P run soon. With an idle P, Gosched is rare.
func TestOtherGoroutinesRun(t *testing.T) {
	c := &fakeCore{yieldTakes: 500, turnTakes: 5000}
	var p Budget
	c.turnsIn(&p, 10e6)
	if n := c.turnsIn(&p, 100e6); n < 150 || n > 200 {
		t.Errorf("no goroutine waits: %d calls of Gosched in 100 ms, want one per %d ns", n, maxSchedEvery)
	}
	c.turnTakes = 500_000 // another poller uses its whole interval
	c.turnsIn(&p, 10e6)
	if n := c.turnsIn(&p, 100e6); n < 180 {
		t.Errorf("another poller waits: %d calls of Gosched in 100 ms, want one per %d ns plus the other's time", n,
			minSchedEvery)
	}
	c.oneP, c.turnTakes = true, 300
	c.turnsIn(&p, 1e6)
	if n, y := c.turnsIn(&p, 10e6), c.yields; n < 1000 {
		t.Errorf("on a single P: %d calls of Gosched in 10 ms (%d yields), want one per yield", n, y)
	}
}

// A poller on a contended core naps now and then, less and less often while that does not help.
func TestNapsFindAnotherCore(t *testing.T) {
	c := &fakeCore{yieldTakes: 5000}
	var p Budget
	c.turnsIn(&p, 1e6)
	if c.naps < 1 || c.naps > 3 {
		t.Errorf("%d naps in the first millisecond", c.naps)
	}
	c.naps = 0
	c.turnsIn(&p, 1e9)
	if c.naps < 4 || c.naps > 20 {
		t.Errorf("%d naps in a second on a contended core", c.naps)
	}
	c.yieldTakes = 500
	c.turnsIn(&p, 1e6)
	c.naps = 0
	c.turnsIn(&p, 1e8)
	if c.naps != 0 {
		t.Errorf("%d naps on a free core", c.naps)
	}
	c.yieldTakes = 5000
	c.turnsIn(&p, 1e6)
	if c.naps < 1 || c.naps > 3 {
		t.Errorf("%d naps in the first millisecond of sharing again", c.naps)
	}
}

// If a yield costs time slices, the poller sleeps until completions and rarely tries a yield. Otherwise it polls.
func TestSleepsAmongBusyThreads(t *testing.T) {
	c := &fakeCore{yieldTakes: 500}
	var p Budget
	c.turnsIn(&p, 100e6)
	if c.awaits != 0 || p.sleepUntil.Load() != 0 {
		t.Fatalf("slept %d times on a free core", c.awaits)
	}
	c.yieldTakes = 4e6
	c.turnsIn(&p, 100e6)
	c.yields = 0
	c.turnsIn(&p, 10e9)
	if c.awaits < 1000 || p.sleepUntil.Load() == 0 {
		t.Errorf("slept %d times in 10 s among busy threads", c.awaits)
	}
	if c.yields < 8 || c.yields > 40 {
		t.Errorf("%d yields in 10 s among busy threads, want about one per second", c.yields)
	}
	c.yieldTakes = 500
	c.turnsIn(&p, maxSleepFor)
	c.awaits = 0
	c.turnsIn(&p, 100e6)
	if c.awaits != 0 || p.sleepUntil.Load() != 0 {
		t.Errorf("slept %d times after the busy threads ended", c.awaits)
	}
}

// A stopped virtual core looks like a lost time slice. No other thread ran, so sleeping would not help.
func TestNoSleepOnAStoppedCore(t *testing.T) {
	c := &fakeCore{yieldTakes: 4e6, stopped: true}
	var p Budget
	c.turnsIn(&p, 1e9)
	if c.awaits != 0 {
		t.Errorf("slept %d times", c.awaits)
	}
	c.stopped = false
	c.turnsIn(&p, 1e9)
	if c.awaits == 0 {
		t.Error("among busy threads afterwards: never slept")
	}
}

// On a machine with slow system calls a long yield or Gosched is no sign of contention.
func TestSlowMachine(t *testing.T) {
	now := int64(0)
	c := &fakeCore{yieldTakes: 6000, turnTakes: 100_000}
	p := Budget{slowdown: Slowdown(func() int64 { now += 5000; return now })}
	c.turnsIn(&p, 100e6)
	if n := c.missesUntilYield(&p); n != maxMisses {
		t.Errorf("yield after %d polls, want %d", n, maxMisses)
	}
	if c.naps != 0 || c.awaits != 0 {
		t.Errorf("%d naps and %d sleeps until a completion, want none", c.naps, c.awaits)
	}
	if n := c.turnsIn(&p, 100e6); n > 35 {
		t.Errorf("%d calls of Gosched in 100 ms", n)
	}
	if slow := Slowdown(func() int64 { now += 50; return now }); slow != 1 {
		t.Errorf("Slowdown of a fast machine is %d, want 1", slow)
	}
}
