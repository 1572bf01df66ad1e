package engine

import (
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/spin"
)

// maxAwait is the longest sleep of a poller, which may also poll other devices or its own memory. Tests change it.
var maxAwait = 250 * time.Microsecond

// A sleeper is a poller of a CQ that sleeps until a completion arrives, because cores are scarce (spin.Budget).
type sleeper struct {
	rung  chan struct{} // receives a wake-up
	clock *time.Timer
	busy  atomic.Bool // a goroutine sleeps
}

// sleepers are the sleeping pollers of a device. Every completion wakes all of them: a program that polls two CQs in
// turn sleeps at one of them and must not miss completions of the other.
type sleepers struct {
	count atomic.Int32
	slots [8]atomic.Pointer[sleeper]
}

// wake wakes all sleepers.
func (s *sleepers) wake() {
	for i := range s.slots {
		if one := s.slots[i].Load(); one != nil {
			select {
			case one.rung <- struct{}{}:
			default:
			}
		}
	}
}

// add registers a sleeper. It returns false if there are too many.
func (s *sleepers) add(one *sleeper) (slot int, ok bool) {
	for i := range s.slots {
		if s.slots[i].CompareAndSwap(nil, one) {
			s.count.Add(1)
			return i, true
		}
	}
	return 0, false
}

func (s *sleepers) remove(slot int) {
	s.slots[slot].Store(nil)
	s.count.Add(-1)
}

// await sleeps until a completion arrives at any CQ of the device, at most maxAwait, while the background goroutines
// run the shards. It returns false if it cannot sleep: the engine is manual, its time is virtual, another poller of the
// CQ sleeps, or too many do. The caller may hold a mutex that others wait for, and virtual time does not pass while
// they wait.
//
// No completion of this CQ is missed: the poller registers before it looks at the CQ, and Push looks for sleepers
// after it has stored the completion. A poller of QPs that no shard runs waits for their sockets instead, and finds a
// completion that comes without a packet up to maxAwait later.
func (cq *CQ) await() bool {
	if cq.eng.manual || cq.eng.virtual {
		return false
	}
	if o := cq.outside.Load(); o != nil && cq.shards.Load() == 0 && o.Await(maxAwait) {
		return true
	}
	s := cq.sleeper.Load()
	if s == nil {
		s = &sleeper{rung: make(chan struct{}, 1), clock: time.NewTimer(maxAwait)}
		if !cq.sleeper.CompareAndSwap(nil, s) {
			return false
		}
	}
	if !s.busy.CompareAndSwap(false, true) {
		return false
	}
	defer s.busy.Store(false)
	slot, ok := cq.eng.sleepers.add(s)
	if !ok {
		return false
	}
	defer cq.eng.sleepers.remove(slot)
	cq.handOver()
	if cq.some.Load() || cq.broken.Load() {
		return true
	}
	s.clock.Reset(maxAwait)
	select {
	case <-s.rung:
	case <-s.clock.C:
	}
	s.clock.Stop()
	return true
}

// poller is the spin.Yielder of the goroutines that poll a CQ.
type poller struct{ cq *CQ }

// Clock returns the engine's time.
func (p poller) Clock() int64 { return p.cq.eng.now() }

// YieldCore lets other threads run.
func (p poller) YieldCore(check bool) (others bool) {
	switch {
	case p.cq.eng.manual:
		return false
	case check:
		return spin.YieldChecked()
	}
	spin.YieldCPU()
	return false
}

// Nap sleeps briefly.
func (p poller) Nap() {
	if !p.cq.eng.manual {
		spin.Nap()
	}
}

// Await sleeps until a completion arrives.
func (p poller) Await() bool { return p.cq.await() }

// Sched lets other goroutines run. The runtime looks at sockets only when no goroutine can run, or every 10 ms. With
// one P a poller that never blocks would make the parked background goroutines wait for that long, so it runs their
// shards.
func (p poller) Sched() (several bool) {
	if p.cq.eng.manual {
		return false
	}
	several = spin.Sched()
	if mine := p.cq.shards.Load(); !several && mine != 0 { // else the link may be closed, or not open yet
		now := p.cq.eng.now()
		for i, s := range p.cq.eng.shards {
			if mine>>i&1 == 0 {
				s.poll(now, false)
			}
		}
	}
	return several
}
