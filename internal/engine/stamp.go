package engine

import (
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A Stamp tells when a completion came into its CQ.
type Stamp struct {
	Clock int64 // of the engine, ns
	Wall  int64 // ns since 1970
}

// Now is the engine's clock, ns.
func (e *Engine) Now() int64 { return e.now() }

// Options of a CQ that are rarely wanted; they must be set before it is used.

// KeepTimes makes the CQ note when each completion comes.
func (cq *CQ) KeepTimes() { cq.stamps = make([]Stamp, len(cq.ring)) }

// IgnoreOverrun makes a completion that comes while the CQ is full take the place of the oldest one, which is lost
// (V-CQX-05).
func (cq *CQ) IgnoreOverrun() { cq.overwrite = true }

// stamp is the time now.
func (cq *CQ) stamp() Stamp { return Stamp{Clock: cq.eng.now(), Wall: time.Now().UnixNano()} }

// PollOne is Poll for one completion with its time, which is zero unless the CQ keeps times. more says that the last
// call found one: the shards are then not run, as they are not between the completions that one Poll takes.
func (cq *CQ) PollOne(more bool, take func(e *transport.CQE, t Stamp)) (bool, error) {
	if cq.popOne(take) {
		if !more && cq.polls.Add(1)%pollsPerStep == 0 {
			cq.progress()
		}
		return true, nil
	}
	if more {
		return false, nil
	}
	cq.progress()
	if cq.popOne(take) {
		cq.idle.hit()
		return true, nil
	}
	return false, cq.nothing()
}

// popOne is pop for one completion.
func (cq *CQ) popOne(take func(e *transport.CQE, t Stamp)) bool {
	if cq.count.Load() == 0 {
		return false
	}
	cq.mu.Lock()
	found := cq.head != cq.tail
	if found {
		var t Stamp
		i := cq.head & (cq.cap - 1)
		if cq.stamps != nil {
			t = cq.stamps[i]
		}
		take(&cq.ring[i], t)
		cq.dropOldest()
		cq.count.Store(int32(cq.tail - cq.head))
	}
	cq.mu.Unlock()
	return found
}
