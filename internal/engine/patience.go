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
type patience struct {
	misses atomic.Uint32
	limit  atomic.Uint32 // 0 stands for mostPatience
	turn   atomic.Int64  // when other goroutines get their next turn, ns
	term   atomic.Int64  // how long after the last one that is; 0 stands for shortTerm
	shared atomic.Uint32 // long yields in a row
	nap    atomic.Uint32 // after how many of them the poller sleeps; 0 stands for firstNap
}

const (
	leastPatience = 2
	mostPatience  = 64
	// ownCore is how long a system call that yields takes at most when nobody else wants the core, ns.
	ownCore = 3000
	// Between two turns of other goroutines, ns. A thread is woken in a fraction of shortTerm; another poller takes all of it.
	shortTerm = 32_000
	longTerm  = 512_000
	// After so many long yields in a row the poller sleeps, and after twice as many again if that has not helped.
	firstNap = 32
	lastNap  = 1 << 15
)

// A yielder lets others run: threads on this core, and goroutines.
type yielder interface {
	clock() int64 // ns
	yieldCore()
	sleep() // as short as it can be
	// yieldTurn tells whether goroutines have more than one P.
	yieldTurn() (several bool)
}

// hit says that a poll has found something.
func (p *patience) hit() { p.misses.Store(0) }

// miss says that a poll has found nothing, and yields when it is time. Lost updates of pollers at the same time do no harm.
func (p *patience) miss(y yielder) {
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
	y.yieldCore()
	if y.clock()-start > ownCore {
		limit /= 4
		p.crowded(y)
	} else {
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

// giveTurn lets other goroutines run and chooses when they may again.
func (p *patience) giveTurn(y yielder, start int64) {
	term := max(p.term.Load(), shortTerm)
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
	term = min(max(term, shortTerm), longTerm)
	p.term.Store(term)
	p.turn.Store(end + term)
}

func (e *Engine) clock() int64 { return e.now() }

func (e *Engine) yieldCore() {
	if !e.manual {
		yieldCPU()
	}
}

func (e *Engine) sleep() {
	if !e.manual {
		napThread()
	}
}

func (e *Engine) yieldTurn() bool {
	if e.manual {
		return false
	}
	runtime.Gosched()
	return runtime.GOMAXPROCS(0) > 1
}
