package spin

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"time"
)

// A Clock is the time since its creation, of the clock that time.Since uses. A reading takes a third as long, because
// it counts the processor's ticks: every message takes two readings. It is safe for concurrent use.
//
// The ticks are used only where the kernel itself uses them as its clock, so all processors have the same. Every
// reanchor ticks the clock is read from the kernel, which also shows the length of a tick. So an error, after the
// virtual machine has moved to another processor for example, lasts for a fraction of a millisecond.
type Clock struct {
	start time.Time
	ticks bool // this machine's ticks are a clock

	seq  atomic.Uint32 // odd while the fields below are changed
	at   atomic.Uint64 // ticks at the last reading from the kernel
	ns   atomic.Int64  // that reading
	rate atomic.Uint64 // ns per tick << rateShift; 0: not known yet

	read int64 // what the kernel said at the last reading: at most ns. Of the goroutine that has made seq odd.
}

const (
	rateShift = 32
	// reanchor is the number of ticks after which the kernel is asked again: a fraction of a millisecond.
	reanchor = 1 << 20
	// The rate is measured over leastSpan to mostSpan ticks.
	leastSpan = reanchor / 2
	mostSpan  = 1 << 31
	// hasty is the number of ticks that a reading from the kernel may take to be usable.
	hasty = 1 << 10
	// jump is the difference between both clocks, ns, from which the ticks were wrong.
	jump = 10_000
)

// NewClock returns a clock that starts at 0.
func NewClock() *Clock { return &Clock{start: time.Now(), ticks: ticksAreClock()} }

// Now returns the time in ns.
func (c *Clock) Now() int64 {
	if c.ticks {
		if seq := c.seq.Load(); seq&1 == 0 {
			at, ns, rate := c.at.Load(), c.ns.Load(), c.rate.Load()
			if d := ticks() - at; d < reanchor && rate != 0 && c.seq.Load() == seq {
				return ns + scale(d, rate)
			}
		}
		return c.ask()
	}
	return int64(time.Since(c.start))
}

func scale(ticks, rate uint64) int64 {
	hi, lo := bits.Mul64(ticks, rate)
	return int64(hi<<(64-rateShift) | lo>>rateShift)
}

// ask reads the clock from the kernel, and stores what Now needs.
func (c *Clock) ask() int64 {
	seq := c.seq.Load()
	if seq&1 != 0 || !c.seq.CompareAndSwap(seq, seq+1) {
		for range 64 { // another goroutine asks
			if c.seq.Load()&1 == 0 {
				break
			}
			runtime.Gosched()
		}
		return int64(time.Since(c.start))
	}
	defer c.seq.Store(seq + 2)
	from := ticks()
	now := int64(time.Since(c.start))
	if ticks()-from > hasty { // the thread was interrupted between the readings
		c.rate.Store(0)
		c.at.Store(0)
		return now
	}
	shown := now
	if at := c.at.Load(); at != 0 {
		span := from - at
		if span < leastSpan {
			return now // too short to measure the rate
		}
		shown = c.adjust(span, now)
	}
	c.at.Store(from)
	c.ns.Store(shown)
	c.read = now
	return shown
}

// adjust sets the rate after span ticks, at the end of which the kernel says now. It returns the time to continue
// from: a clock that is ahead does not go back, but runs slower until the kernel is asked again.
func (c *Clock) adjust(span uint64, now int64) int64 {
	if span >= mostSpan || now <= c.read {
		return now
	}
	rate, old := uint64(now-c.read)<<rateShift/span, c.rate.Load()
	ahead := c.ns.Load() + scale(span, old) - now
	if old == 0 || ahead <= 0 || ahead >= jump {
		c.rate.Store(rate)
		return now
	}
	c.rate.Store(max(rate/2, rate-min(rate, uint64(ahead)<<rateShift/reanchor)))
	return now + ahead
}
