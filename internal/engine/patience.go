package engine

import "sync/atomic"

// patience is how many polls in a row may find nothing before the poller lets others have its core. On a core of its own a
// yield is wasted time, so it comes seldom. Where a yield takes long, somebody else wanted the core, and often it is the
// very peer that the poller waits for: then it comes soon.
type patience struct {
	misses atomic.Uint32
	limit  atomic.Uint32 // 0 stands for mostPatience
}

const (
	leastPatience = 2
	mostPatience  = 64
	// ownCore is how long a yield takes at most when nobody else wants the core, ns: a system call, and a Gosched.
	ownCore = 3000
)

// hit says that a poll has found something.
func (p *patience) hit() { p.misses.Store(0) }

// miss says that a poll has found nothing, and yields when it is time. Lost updates of pollers at the same time do no harm.
func (p *patience) miss(e *Engine) {
	limit := p.limit.Load()
	if limit == 0 {
		limit = mostPatience
	}
	if p.misses.Add(1) < limit {
		return
	}
	p.misses.Store(0)
	start := e.now()
	e.yield()
	if e.now()-start > ownCore {
		limit /= 4
	} else {
		limit *= 2
	}
	p.limit.Store(min(max(limit, leastPatience), mostPatience))
}
