package spin

import (
	"runtime"
	"sync/atomic"
)

// A Budget is the number of empty polls after which a poller yields its core. The zero Budget is ready for use on a
// fast machine. It is safe for concurrent use; concurrent updates may be lost, which only delays a yield.
//
// A yield costs a system call. On a core that nobody else wants it is wasted, so yields become rare. If yields take
// long, another thread wanted the core, often the very peer that the poller waits for, and yields become frequent.
//
// Other goroutines need their turns. While the runtime has an idle P they run there, and each Gosched wakes a thread
// that takes over the poller or goes back to sleep. So calls of Gosched are rare too, unless they show that goroutines
// waited.
//
// A poller and its peer that share a core stay there even if another core is idle: the kernel looks for an idle core
// only when a thread wakes up. A poller whose yields stay long therefore sleeps for a moment now and then.
//
// If threads that never sleep want every core, a yield costs their time slices, milliseconds. A poller that keeps the
// core is preempted for as long. It is better off asleep until a completion arrives, because the kernel prefers threads
// that have run little. After a yield that cost a time slice, the poller therefore sleeps instead of yielding for a
// while and then tries again. On a virtual machine a core can be stopped for milliseconds, also during a yield, and
// sleeping makes that worse. So after one long yield the Budget checks during later ones whether other threads did run.
type Budget struct {
	misses     atomic.Uint32
	limit      atomic.Uint32 // 0: maxMisses
	nextSched  atomic.Int64  // time of the next Gosched, ns
	schedEvery atomic.Int64  // interval between two calls of Gosched, ns; 0: minSchedEvery
	longYields atomic.Uint32 // in a row
	napAfter   atomic.Uint32 // number of long yields before the poller sleeps; 0: minNapAfter
	sleepUntil atomic.Int64  // pollers sleep instead of yielding until this time, ns; 0: they yield
	sleepFor   atomic.Int64  // length of that period, ns
	watchUntil atomic.Int64  // yields are checked for other threads until this time, ns

	slowdown int64 // duration of system calls relative to a fast machine; 0: 1
}

const (
	minMisses = 2
	maxMisses = 64
	// freeYield is the longest duration of a yield on a core that no other thread wants, ns, on a machine whose short
	// system calls take at most fastCall.
	freeYield = 3000
	fastCall  = 750
	// Interval between two calls of Gosched, ns. Waking a thread takes a fraction of minSchedEvery; another poller uses
	// all of it.
	minSchedEvery = 32_000
	maxSchedEvery = 512_000
	// Number of long yields in a row after which the poller sleeps. It doubles each time that the sleep did not help.
	minNapAfter = 32
	maxNapAfter = 1 << 15
	// timeSlice is the duration from which a yield has cost another thread's time slice, ns.
	timeSlice = 500_000
	// watchFor is how long yields are checked for other threads after such a yield, ns.
	watchFor = 2 * maxSleepFor
	// Period in which pollers sleep instead of yielding, ns. It doubles while yields stay that long.
	minSleepFor = 20_000_000
	maxSleepFor = 1_000_000_000
	// sleepMisses is the number of empty polls before a sleep in that period: some microseconds, in which a peer with a
	// core of its own answers.
	sleepMisses = 32
)

// A Yielder gives up the poller's core in several ways.
type Yielder interface {
	// Clock returns the time in ns.
	Clock() int64
	// YieldCore lets other threads run. If check is set it reports whether one did.
	YieldCore(check bool) (others bool)
	// Nap sleeps as briefly as possible.
	Nap()
	// Await sleeps until a completion arrives, with a bound. It returns false if it cannot sleep.
	Await() bool
	// Sched lets other goroutines run and reports whether there are several Ps.
	Sched() (several bool)
}

// NewBudget returns a Budget for a machine with the given result of Slowdown.
func NewBudget(slowdown int64) Budget { return Budget{slowdown: slowdown} }

// Hit records a poll that found something.
func (b *Budget) Hit() {
	if b.misses.Load() != 0 {
		b.misses.Store(0)
	}
}

// Misses returns the number of empty polls in a row, since the last yield at most.
func (b *Budget) Misses() uint32 { return b.misses.Load() }

// Miss records an empty poll, and yields or sleeps when the budget is used up.
func (b *Budget) Miss(y Yielder) {
	if until := b.sleepUntil.Load(); until != 0 {
		if b.misses.Add(1) < sleepMisses {
			return
		}
		b.misses.Store(0)
		if y.Clock() < until && y.Await() {
			return
		}
		b.sleepUntil.Store(0)
		b.misses.Store(maxMisses)
	}
	limit := b.limit.Load()
	if limit == 0 {
		limit = maxMisses
	}
	if b.misses.Add(1) < limit {
		return
	}
	b.misses.Store(0)
	b.yield(y, limit)
}

// yield yields once and adapts the limit to the duration of the yield.
func (b *Budget) yield(y Yielder, limit uint32) {
	start := y.Clock()
	if start >= b.nextSched.Load() {
		b.sched(y, start)
		start = y.Clock()
	}
	watch := start < b.watchUntil.Load()
	others := y.YieldCore(watch)
	now := y.Clock()
	if now-start > timeSlice {
		b.watchUntil.Store(now + watchFor)
		if watch && others {
			b.startSleeping(now)
		}
	}
	if now-start > freeYield*b.factor() {
		limit /= 4
		b.longYield(y)
	} else {
		b.sleepFor.Store(0)
		limit *= 2
		b.longYields.Store(0)
		b.napAfter.Store(minNapAfter)
	}
	b.limit.Store(min(max(limit, minMisses), maxMisses))
}

// longYield counts a long yield. From time to time it sleeps, so that the kernel looks for another core.
func (b *Budget) longYield(y Yielder) {
	after := max(b.napAfter.Load(), minNapAfter)
	if b.longYields.Add(1) < after {
		return
	}
	b.longYields.Store(0)
	b.napAfter.Store(min(2*after, maxNapAfter))
	y.Nap()
}

// startSleeping makes pollers sleep instead of yielding for a while.
func (b *Budget) startSleeping(now int64) {
	d := min(max(2*b.sleepFor.Load(), minSleepFor), maxSleepFor)
	b.sleepFor.Store(d)
	b.SleepUntil(now + d)
}

// SleepUntil makes pollers sleep instead of yielding until time t, in ns.
func (b *Budget) SleepUntil(t int64) { b.sleepUntil.Store(t) }

// sched lets other goroutines run and sets the time of the next call.
func (b *Budget) sched(y Yielder, start int64) {
	shortest, longest := minSchedEvery*b.factor(), maxSchedEvery*b.factor()
	every := max(b.schedEvery.Load(), shortest)
	several := y.Sched()
	end := y.Clock()
	switch {
	case !several:
		b.nextSched.Store(end)
		return
	case end-start > every/2:
		every /= 2
	default:
		every *= 2
	}
	every = min(max(every, shortest), longest)
	b.schedEvery.Store(every)
	b.nextSched.Store(end + every)
}

func (b *Budget) factor() int64 { return max(b.slowdown, 1) }

// Slowdown measures how long system calls take relative to a fast machine. It returns at least 1.
func Slowdown(clock func() int64) int64 {
	const tries = 8
	shortest := int64(timeSlice)
	for range tries {
		start := clock()
		shortCall()
		shortest = min(shortest, clock()-start)
	}
	return 1 + shortest/fastCall
}

// YieldChecked is YieldCPU. It reports whether another thread ran meanwhile, where that can be seen.
func YieldChecked() (others bool) {
	before := switches()
	YieldCPU()
	return switches() != before
}

// Sched calls runtime.Gosched and reports whether there are several Ps.
func Sched() (several bool) {
	runtime.Gosched()
	return runtime.GOMAXPROCS(0) > 1
}
