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

// First is the oldest completion and when it came, which is zero unless the CQ keeps times; nil if there is none, with
// the error of Poll. With a completion the CQ stays locked until Drop, which the caller owes at once. more says that the
// last call found one: the shards are then not run, as they are not between the completions that one Poll takes.
func (cq *CQ) First(more bool) (*transport.CQE, Stamp, error) {
	if e, t := cq.first(); e != nil || more {
		return e, t, nil
	}
	cq.progress()
	if e, t := cq.first(); e != nil {
		cq.idle.hit()
		return e, t, nil
	}
	return nil, Stamp{}, cq.nothing()
}

// first is First for what the CQ holds.
func (cq *CQ) first() (e *transport.CQE, t Stamp) {
	if !cq.some.Load() {
		return nil, t
	}
	cq.mu.Lock()
	if cq.head == cq.tail {
		cq.mu.Unlock()
		return nil, t
	}
	i := cq.head & (cq.cap - 1)
	if cq.stamps != nil {
		t = cq.stamps[i]
	}
	return &cq.ring[i], t
}

// Drop takes what First found away. more is that of First.
func (cq *CQ) Drop(more bool) {
	cq.dropOldest()
	cq.emptied()
	cq.mu.Unlock()
	if !more && cq.polls.Add(1)%pollsPerStep == 0 {
		cq.progress()
	}
}
