package engine

import "testing"

// fakeCore is a core on which each yield takes a given time.
type fakeCore struct {
	now, yieldTakes, turnTakes int64
	yields, turns, naps        int
	awaits                     int
	oneP, stands               bool // stands: yields take long because the core stands still
}

func (c *fakeCore) clock() int64 { return c.now }
func (c *fakeCore) yieldCore(look bool) bool {
	c.now += c.yieldTakes
	c.yields++
	return look && !c.stands
}
func (c *fakeCore) sleep()      { c.now += 60_000; c.naps++ }
func (c *fakeCore) await() bool { c.now += 20_000; c.awaits++; return true }
func (c *fakeCore) yieldTurn() bool {
	c.now += c.turnTakes
	c.turns++
	return !c.oneP
}

// missesUntilYield is how many polls find nothing before the next yield.
func (c *fakeCore) missesUntilYield(p *patience) int {
	for n, before := 1, c.yields; ; n++ {
		if p.miss(c); c.yields != before {
			return n
		}
	}
}

// A poller that finds its core wanted by others yields soon, and one that has it for itself seldom.
func TestPatienceFollowsTheCore(t *testing.T) {
	c := &fakeCore{yieldTakes: 500}
	var p patience
	if n := c.missesUntilYield(&p); n != mostPatience {
		t.Errorf("first yield after %d polls, want %d", n, mostPatience)
	}
	c.yieldTakes = 50_000
	for range 5 {
		c.missesUntilYield(&p)
	}
	if n := c.missesUntilYield(&p); n != leastPatience {
		t.Errorf("on a core that others want: a yield after %d polls, want %d", n, leastPatience)
	}
	c.yieldTakes = 500
	for range 8 {
		c.missesUntilYield(&p)
	}
	if n := c.missesUntilYield(&p); n != mostPatience {
		t.Errorf("on a core of its own again: a yield after %d polls, want %d", n, mostPatience)
	}
	p.misses.Store(5)
	p.hit()
	if n := c.missesUntilYield(&p); n != mostPatience {
		t.Errorf("a hit does not begin the count anew: yield after %d", n)
	}
}

// turnsIn is how often other goroutines get a turn while a poller finds nothing for d ns, at 100 ns for a poll.
func (c *fakeCore) turnsIn(p *patience, d int64) int {
	before := c.turns
	for end := c.now + d; c.now < end; c.now += 100 {
		p.miss(c)
	}
	return c.turns - before
}

// Goroutines that wait for the poller's P get turns soon; where there is an idle P, turns are rare.
func TestPatienceGivesTurns(t *testing.T) {
	c := &fakeCore{yieldTakes: 500, turnTakes: 5000}
	var p patience
	c.turnsIn(&p, 10e6)
	if n := c.turnsIn(&p, 100e6); n < 150 || n > 200 {
		t.Errorf("nobody waits: %d turns in 100 ms, want one each %d ns", n, longTerm)
	}
	c.turnTakes = 500_000 // another poller has its whole term
	c.turnsIn(&p, 10e6)
	if n := c.turnsIn(&p, 100e6); n < 180 {
		t.Errorf("another poller waits: %d turns in 100 ms, want one each %d ns beside the other's time", n, shortTerm)
	}
	c.oneP, c.turnTakes = true, 300
	c.turnsIn(&p, 1e6)
	if n, y := c.turnsIn(&p, 10e6), c.yields; n < 1000 {
		t.Errorf("on a single P: %d turns in 10 ms (%d yields), want one with each yield", n, y)
	}
}

// A poller that shares its core for long looks for another one, less and less often while there is none.
func TestPatienceLooksForAnotherCore(t *testing.T) {
	c := &fakeCore{yieldTakes: 5000}
	var p patience
	c.turnsIn(&p, 1e6)
	if c.naps < 1 || c.naps > 3 {
		t.Errorf("%d naps in the first millisecond", c.naps)
	}
	c.naps = 0
	c.turnsIn(&p, 1e9)
	if c.naps < 4 || c.naps > 20 {
		t.Errorf("%d naps in a second without an idle core", c.naps)
	}
	c.yieldTakes = 500
	c.turnsIn(&p, 1e6)
	c.naps = 0
	c.turnsIn(&p, 1e8)
	if c.naps != 0 {
		t.Errorf("%d naps on a core of its own", c.naps)
	}
	c.yieldTakes = 5000
	c.turnsIn(&p, 1e6)
	if c.naps < 1 || c.naps > 3 {
		t.Errorf("%d naps in the first millisecond of sharing again", c.naps)
	}
}

// Where a yield costs time slices, the poller sleeps until something comes and seldom tries another one; where it does not, it polls.
func TestPatienceSleepsAmongHogs(t *testing.T) {
	c := &fakeCore{yieldTakes: 500}
	var p patience
	c.turnsIn(&p, 100e6)
	if c.awaits != 0 || p.robbed.Load() != 0 {
		t.Fatalf("slept %d times on a core of its own", c.awaits)
	}
	c.yieldTakes = 4e6
	c.turnsIn(&p, 100e6)
	c.yields = 0
	c.turnsIn(&p, 10e9)
	if c.awaits < 1000 || p.robbed.Load() == 0 {
		t.Errorf("slept %d times in 10 s among hogs", c.awaits)
	}
	if c.yields < 8 || c.yields > 40 {
		t.Errorf("%d yields in 10 s among hogs, want one each second when they stay", c.yields)
	}
	c.yieldTakes = 500
	c.turnsIn(&p, lastRelief)
	c.awaits = 0
	c.turnsIn(&p, 100e6)
	if c.awaits != 0 || p.robbed.Load() != 0 {
		t.Errorf("slept %d times after the hogs had gone", c.awaits)
	}
}

// A virtual processor that stands still looks like a lost time slice. But nobody took it, and sleeping would cost more.
func TestPatienceOutlastsAStandstill(t *testing.T) {
	c := &fakeCore{yieldTakes: 4e6, stands: true}
	var p patience
	c.turnsIn(&p, 1e9)
	if c.awaits != 0 {
		t.Errorf("slept %d times", c.awaits)
	}
	c.stands = false
	c.turnsIn(&p, 1e9)
	if c.awaits == 0 {
		t.Error("among hogs after that: never slept")
	}
}

// Where every system call takes long, a long yield does not tell of others who want the core, nor a long turn of goroutines that waited.
func TestPatienceOnASlowMachine(t *testing.T) {
	now := int64(0)
	c := &fakeCore{yieldTakes: 6000, turnTakes: 100_000}
	p := patience{slow: slownessOf(func() int64 { now += 5000; return now })}
	c.turnsIn(&p, 100e6)
	if n := c.missesUntilYield(&p); n != mostPatience {
		t.Errorf("a yield after %d polls, want %d", n, mostPatience)
	}
	if c.naps != 0 || c.awaits != 0 {
		t.Errorf("%d naps and %d sleeps until a completion, want none", c.naps, c.awaits)
	}
	if n := c.turnsIn(&p, 100e6); n > 35 {
		t.Errorf("%d turns of other goroutines in 100 ms", n)
	}
	if slow := slownessOf(func() int64 { now += 50; return now }); slow != 1 {
		t.Errorf("a fast machine is %d times as slow as one", slow)
	}
}
