package engine

import (
	"sync/atomic"
	"time"
)

// maxAwait is the longest sleep of a poller. It may have more to look at than one device: another one, or its own memory. Tests change it.
var maxAwait = 250 * time.Microsecond

// A sleeper is the poller of a CQ that sleeps until a completion comes, for want of a core (patience).
type sleeper struct {
	rung  chan struct{}
	clock *time.Timer
	busy  atomic.Bool // it does sleep
}

// sleepers are those of a device. Every completion wakes all of them: a program that polls two CQs in turn sleeps at one of them, and
// must not miss what comes to the other.
type sleepers struct {
	count atomic.Int32
	slots [8]atomic.Pointer[sleeper]
}

// wake wakes the pollers that sleep.
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

// add makes a sleeper known. It is false if there are too many.
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

// await sleeps until a completion comes to some CQ of the device, but not longer than maxAwait, while the background goroutines run
// the shards. It is false if it cannot: nobody else runs the shards, another poller of the CQ sleeps, or too many do.
//
// No completion of this CQ is missed: the poller makes itself known before it looks at the CQ, and Push looks for sleepers after the
// completion is there.
func (cq *CQ) await() bool {
	if cq.eng.manual {
		return false
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
	for i := range bitsOf(cq.shards.Load()) {
		cq.eng.shards[i].handOver()
	}
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
