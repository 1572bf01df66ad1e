package engine

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// batchLen is the number of completions that leave the ring at once for a program that takes them one by one.
const batchLen = 16

// A batch holds completions that have left the ring for a program that takes them one by one, so that it need not
// lock the CQ for each. Their queue slots are already free, and they do not count when the CQ overflows or is
// resized. They are older than the completions in the ring.
type batch struct {
	entries [batchLen]transport.CQE
	stamps  [batchLen]Stamp // zero unless the CQ keeps times
	n       int             // number of entries; written under the CQ's lock
	at      int             // index of the next one; the poller's
	gone    atomic.Uint32   // a bit for each purged entry
}

// next returns the oldest remaining entry, or nil. It stays valid until the batch is refilled.
func (b *batch) next() (*transport.CQE, Stamp) {
	for b.at < b.n {
		i := b.at % batchLen // in range even if calls overlap, which is a program error
		b.at++
		if b.gone.Load()>>i&1 == 0 {
			return &b.entries[i], b.stamps[i]
		}
		b.entries[i].Lose()
	}
	return nil, Stamp{}
}

// takeOut passes at most n entries to take, numbered from first. The CQ is locked.
func (b *batch) takeOut(n, first int, take func(i int, e *transport.CQE)) int {
	for i := range n {
		e, _ := b.next()
		if e == nil {
			return i
		}
		take(first+i, e)
	}
	return n
}

// purge removes the entries for which gone returns true. The CQ is locked.
func (b *batch) purge(gone func(*transport.CQE) bool) {
	for i := range b.n {
		if e := &b.entries[i]; b.gone.Load()>>i&1 == 0 && gone(e) {
			b.gone.Or(1 << i)
			if !e.Unexpected() { // next needs its queue
				dropQueues(e)
			}
		}
	}
}

// Next takes the oldest completion. It returns nil, with the error of Poll, if there is none. The stamp is zero
// unless the CQ keeps times. The entry is valid until the next call. more states that the previous call found one:
// the shards are then not run, as Poll does not run them between the completions of one call. Calls must not overlap.
func (cq *CQ) Next(more bool) (*transport.CQE, Stamp, error) {
	b := cq.batch.Load()
	if b == nil {
		b = new(batch)
		cq.batch.Store(b)
	}
	e, t := cq.oldest(b)
	switch {
	case more:
		return e, t, nil
	case e != nil:
		if cq.polls.Add(1)%pollsPerStep == 0 {
			cq.progress()
		}
		return e, t, nil
	}
	cq.progress()
	if e, t = cq.oldest(b); e != nil {
		cq.idle.Hit()
		return e, t, nil
	}
	return nil, Stamp{}, cq.empty()
}

// oldest takes the oldest completion of the batch or the ring.
func (cq *CQ) oldest(b *batch) (*transport.CQE, Stamp) {
	if e, t := b.next(); e != nil || !cq.refill(b) {
		return e, t
	}
	return b.next()
}

// refill moves the oldest completions to b, which is empty, and reports whether there were any.
func (cq *CQ) refill(b *batch) bool {
	if !cq.some.Load() {
		return false
	}
	cq.mu.Lock()
	b.gone.Store(0)
	b.at = 0
	head, mask, stamps := cq.head, uint32(len(cq.ring)-1), cq.stamps
	b.n = cq.takeOut(batchLen, 0, func(i int, e *transport.CQE) {
		b.entries[i] = *e
		if stamps != nil {
			b.stamps[i] = stamps[(head+uint32(i))&mask]
		}
	})
	cq.mu.Unlock()
	return b.n > 0
}
