package engine

import "time"

// Outside runs the QPs that no shard runs, and that complete into CQs of the engine: those of iWARP. Its methods are
// safe for concurrent use.
type Outside interface {
	// Poll runs the QPs, unless another goroutine does. active reports that the program polls: then no goroutine of the
	// device need run them for a while.
	Poll(active bool)
	// Await is Poll of a poller that waits for at most limit until there is something to do. It returns false at once if
	// another goroutine runs the QPs.
	Await(limit time.Duration) bool
	// HandOver makes a goroutine of the device run the QPs, because a poller is about to sleep.
	HandOver()
}

// outside is the Outside of a CQ.
type outside struct {
	Outside
	users int // number of QP queues; guarded by the CQ's mu
}

// Join counts a queue of a QP that o runs and that completes into the CQ. Pollers of the CQ then run o. All such QPs
// of a CQ have the same o.
func (cq *CQ) Join(o Outside) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	u := cq.outside.Load()
	if u == nil {
		u = &outside{Outside: o}
		cq.outside.Store(u)
	}
	u.users++
}

// Leave undoes one Join.
func (cq *CQ) Leave() {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if u := cq.outside.Load(); u != nil {
		if u.users--; u.users == 0 {
			cq.outside.Store(nil)
		}
	}
}

// handOver lets the background goroutines run the CQ's QPs, because a poller is about to sleep.
func (cq *CQ) handOver() {
	for i := range bitsOf(cq.shards.Load()) {
		cq.eng.shards[i].handOver()
	}
	if o := cq.outside.Load(); o != nil {
		o.HandOver()
	}
}
