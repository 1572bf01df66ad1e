package engine

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// batchLen is how many completions a CQ hands over at once to a program that takes them one by one.
const batchLen = 16

// A batch is completions that have left the ring for a program that takes them one by one, so that it need not lock the CQ
// for each. Their queue slots are free already, and they do not count when the CQ overflows or is resized. They are older than
// what is in the ring.
type batch struct {
	entries [batchLen]transport.CQE
	stamps  [batchLen]Stamp // zero unless the CQ keeps times
	n       int             // entries; written under the CQ's lock
	at      int             // the next one; the poller's
	gone    atomic.Uint32   // a bit for each entry that was purged
}

// next is the oldest entry that nobody took, or nil. It stays valid until the batch is filled again.
func (b *batch) next() (*transport.CQE, Stamp) {
	for b.at < b.n {
		i := b.at % batchLen // no more than that only as long as calls follow each other
		b.at++
		if b.gone.Load()>>i&1 == 0 {
			return &b.entries[i], b.stamps[i]
		}
	}
	return nil, Stamp{}
}

// takeOut passes at most n entries to take, with their numbers from 0 on. The CQ is locked.
func (b *batch) takeOut(n int, take func(i int, e *transport.CQE)) int {
	for i := range n {
		e, _ := b.next()
		if e == nil {
			return i
		}
		take(i, e)
	}
	return n
}

// purge removes the entries that gone tells. The CQ is locked.
func (b *batch) purge(gone func(*transport.CQE) bool) {
	for i := range b.n {
		if e := &b.entries[i]; b.gone.Load()>>i&1 == 0 && gone(e) {
			b.gone.Or(1 << i)
			disown(e)
		}
	}
}

// Next takes the oldest completion, and tells when it came, which is zero unless the CQ keeps times; nil if there is none, with
// the error of Poll. It is valid until the next call. more says that the last call found one: the shards are then not run, as they
// are not between the completions that one Poll takes. Calls must follow each other.
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
		cq.idle.hit()
		return e, t, nil
	}
	return nil, Stamp{}, cq.nothing()
}

// oldest is Next for what the CQ holds.
func (cq *CQ) oldest(b *batch) (*transport.CQE, Stamp) {
	if e, t := b.next(); e != nil || !cq.fill(b) {
		return e, t
	}
	return b.next()
}

// fill moves the oldest completions to b, which is empty, and tells whether there were any.
func (cq *CQ) fill(b *batch) bool {
	if !cq.some.Load() {
		return false
	}
	cq.mu.Lock()
	b.gone.Store(0)
	b.at = 0
	head := cq.head
	b.n = cq.takeOut(batchLen, 0, func(i int, e *transport.CQE) {
		b.entries[i] = *e
		if cq.stamps != nil {
			b.stamps[i] = cq.stamps[(head+uint32(i))&(cq.cap-1)]
		}
	})
	cq.mu.Unlock()
	return b.n > 0
}
