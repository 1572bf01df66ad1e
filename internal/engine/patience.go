package engine

import (
	"runtime"
	"sync/atomic"
)

// patience is how many polls in a row may find nothing before the poller lets others have its core. On a core of its own a
// yield is wasted time, so it comes seldom. Where a yield takes long, somebody else wanted the core, and often it is the
// very peer that the poller waits for: then it comes soon.
//
// Other goroutines need their turn too, but as long as the runtime has an idle P they get that one, and each Gosched
// wakes a thread for it, which takes the poller over or goes to sleep again: more than a core's work for nothing, taken from
// the peer. So turns come seldom as well, unless they show that others have waited.
//
// A poller and its peer that share a core while another one is idle do not part by themselves: the kernel sees two threads
// that take turns. It looks for an idle core when a thread wakes up. So a poller whose yields stay long sleeps for a moment now
// and then.
//
// Where programs that never sleep want every core, a yield costs their whole time slices, milliseconds, and a poller that keeps
// its core instead is taken off it for as long: the kernel prefers threads that have used little. So a poller that was away for
// long polls only for a moment after that and then sleeps until a completion comes, as programs do that wait for events. It
// tries a yield again from time to time. But the processors of a virtual machine stand still now and then, also during a yield, and
// sleeping makes that worse. So after a long yield the poller looks for a while whether others do run during its yields.
type patience struct {
	misses atomic.Uint32
	limit  atomic.Uint32 // 0 stands for mostPatience
	turn   atomic.Int64  // when other goroutines get their next turn, ns
	term   atomic.Int64  // how long after the last one that is; 0 stands for shortTerm
	shared atomic.Uint32 // long yields in a row
	nap    atomic.Uint32 // after how many of them the poller sleeps; 0 stands for firstNap
	robbed atomic.Int64  // until when pollers sleep instead of yielding, ns; 0 if they need not
	relief atomic.Int64  // how long that lasts, ns
	doubt  atomic.Int64  // until when long yields are looked at closely, ns

	// slow is how many times as long as on a fast machine calls of the system take here; 0 stands for 1.
	slow int64
}

const (
	leastPatience = 2
	mostPatience  = 64
	// ownCore is how long a system call that yields takes at most on a core that nobody else wants, ns, on a machine where a short
	// system call takes fastCall at most.
	ownCore  = 3000
	fastCall = 750
	// Between two turns of other goroutines, ns. A thread is woken in a fraction of shortTerm; another poller takes all of it.
	shortTerm = 32_000
	longTerm  = 512_000
	// After so many long yields in a row the poller sleeps, and after twice as many again if that has not helped.
	firstNap = 32
	lastNap  = 1 << 15
	// A yield that takes longer than this has cost somebody's time slice, ns.
	timeSlice = 500_000
	// For how long yields are looked at after one of these, ns.
	doubtful = 2 * lastRelief
	// How long pollers sleep instead of yielding after that, ns: longer each time when the next yield is as long.
	firstRelief = 20_000_000
	lastRelief  = 1_000_000_000
	// Polls that find nothing before the poller sleeps then: some microseconds, in which a peer with a core of its own answers.
	restlessness = 32
)

// A yielder lets others run: threads on this core, and goroutines.
type yielder interface {
	clock() int64 // ns
	// yieldCore tells, if look is set, whether others ran meanwhile.
	yieldCore(look bool) (others bool)
	sleep() // as short as it can be
	// await sleeps until a completion comes, but not for long, and is false if it cannot.
	await() bool
	// yieldTurn tells whether goroutines have more than one P.
	yieldTurn() (several bool)
}

// hit says that a poll has found something.
func (p *patience) hit() { p.misses.Store(0) }

// miss says that a poll has found nothing, and yields when it is time. Lost updates of pollers at the same time do no harm.
func (p *patience) miss(y yielder) {
	if until := p.robbed.Load(); until != 0 {
		if p.misses.Add(1) < restlessness {
			return
		}
		p.misses.Store(0)
		if y.clock() < until && y.await() {
			return
		}
		p.robbed.Store(0)
		p.misses.Store(mostPatience)
	}
	limit := p.limit.Load()
	if limit == 0 {
		limit = mostPatience
	}
	if p.misses.Add(1) < limit {
		return
	}
	p.misses.Store(0)
	start := y.clock()
	if start >= p.turn.Load() {
		p.giveTurn(y, start)
		start = y.clock()
	}
	doubting := start < p.doubt.Load()
	others := y.yieldCore(doubting)
	now := y.clock()
	if now-start > timeSlice {
		p.doubt.Store(now + doubtful)
		if doubting && others {
			p.relieve(now)
		}
	}
	if now-start > ownCore*p.slowness() {
		limit /= 4
		p.crowded(y)
	} else {
		p.relief.Store(0)
		limit *= 2
		p.shared.Store(0)
		p.nap.Store(firstNap)
	}
	p.limit.Store(min(max(limit, leastPatience), mostPatience))
}

// crowded counts a long yield, and sleeps when it is time to look for another core.
func (p *patience) crowded(y yielder) {
	nap := max(p.nap.Load(), firstNap)
	if p.shared.Add(1) < nap {
		return
	}
	p.shared.Store(0)
	p.nap.Store(min(2*nap, lastNap))
	y.sleep()
}

// relieve lets pollers sleep instead of yielding for a while.
func (p *patience) relieve(now int64) {
	relief := min(max(2*p.relief.Load(), firstRelief), lastRelief)
	p.relief.Store(relief)
	p.robbed.Store(now + relief)
}

// giveTurn lets other goroutines run and chooses when they may again.
func (p *patience) giveTurn(y yielder, start int64) {
	shortest, longest := shortTerm*p.slowness(), longTerm*p.slowness()
	term := max(p.term.Load(), shortest)
	several := y.yieldTurn()
	end := y.clock()
	switch {
	case !several:
		p.turn.Store(end)
		return
	case end-start > term/2:
		term /= 2
	default:
		term *= 2
	}
	term = min(max(term, shortest), longest)
	p.term.Store(term)
	p.turn.Store(end + term)
}

func (p *patience) slowness() int64 { return max(p.slow, 1) }

// slownessOf measures how many times as long as on a fast machine calls of the system take.
func slownessOf(clock func() int64) int64 {
	const tries = 8
	shortest := int64(timeSlice)
	for range tries {
		start := clock()
		shortCall()
		shortest = min(shortest, clock()-start)
	}
	return 1 + shortest/fastCall
}

// A CQ is the yielder of its pollers.
func (cq *CQ) clock() int64 { return cq.eng.now() }

func (cq *CQ) yieldCore(look bool) (others bool) {
	if cq.eng.manual {
		return false
	}
	if !look {
		yieldCPU()
		return false
	}
	before := switches()
	yieldCPU()
	return switches() != before
}

func (cq *CQ) sleep() {
	if !cq.eng.manual {
		napThread()
	}
}

func (cq *CQ) yieldTurn() bool {
	if cq.eng.manual {
		return false
	}
	runtime.Gosched()
	return runtime.GOMAXPROCS(0) > 1
}
