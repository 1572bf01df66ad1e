package engine

import (
	"errors"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/transport"
)

const (
	qpnBits     = 24
	qpnPageBits = 12
	qpnPageSize = 1 << qpnPageBits
	// minQPN is the first number for ordinary QPs; those below are for QP0, QP1 and what may come.
	minQPN = 0x10
	maxQPN = 1<<qpnBits - 2 // the last one means multicast
)

// Errors of QP creation.
var (
	ErrQPLimit = errors.New("the device has no free queue pair")
	ErrQPInUse = errors.New("the queue pair number is in use")
)

type qpPage struct {
	qps  [qpnPageSize]atomic.Pointer[transport.QP]
	used int
}

// qpTable finds a QP by its number. Looking up takes no lock.
type qpTable struct {
	mu    sync.Mutex
	pages [1 << (qpnBits - qpnPageBits)]atomic.Pointer[qpPage]
	next  uint32 // where the search for a free number begins
	count int
	max   int
}

// get finds the QP of a number, nil if there is none.
func (t *qpTable) get(qpn uint32) *transport.QP {
	if qp := t.entry(qpn); qp != reserved {
		return qp
	}
	return nil
}

func (t *qpTable) entry(qpn uint32) *transport.QP {
	p := t.pages[qpn>>qpnPageBits&(1<<(qpnBits-qpnPageBits)-1)].Load()
	if p == nil {
		return nil
	}
	return p.qps[qpn&(qpnPageSize-1)].Load()
}

// reserve finds a free number that leaves shard when divided by shards, and counts it as used. Numbers
// go round, so that one is not used again soon after it was freed: stray packets of its last connection may still be under way.
func (t *qpTable) reserve(shard, shards uint32) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= t.max {
		return 0, ErrQPLimit
	}
	n := t.next
	for range maxQPN {
		if n < minQPN || n > maxQPN {
			n = minQPN
		}
		if n%shards == shard && t.entry(n) == nil {
			t.next = n + 1
			t.take(n)
			return n, nil
		}
		n++
	}
	return 0, ErrQPLimit
}

// span is a range of QP numbers from which those of one shard come.
type span struct{ first, last, next uint32 }

// newSpan is the range without the numbers that have a meaning of their own. QPs begin anywhere in it, unless the first number is given.
func newSpan(first, last uint32, random bool) span {
	s := span{first: max(first, minQPN), last: min(last, maxQPN)}
	s.next = s.first
	if random {
		s.next += rand.Uint32N(s.last - s.first + 1)
	}
	return s
}

// reserveIn finds a free number of a span, as reserve does.
func (t *qpTable) reserveIn(s *span) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count >= t.max {
		return 0, ErrQPLimit
	}
	for range s.last - s.first + 1 {
		n := s.next
		if s.next++; s.next > s.last {
			s.next = s.first
		}
		if t.entry(n) == nil {
			t.take(n)
			return n, nil
		}
	}
	return 0, ErrQPLimit
}

// reserveFixed takes a given number below minQPN.
func (t *qpTable) reserveFixed(n uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.entry(n) != nil {
		return ErrQPInUse
	}
	t.take(n)
	return nil
}

// reserved stands in the table for a QP that is being made.
var reserved = new(transport.QP)

func (t *qpTable) take(n uint32) {
	slot := &t.pages[n>>qpnPageBits]
	p := slot.Load()
	if p == nil {
		p = new(qpPage)
		slot.Store(p)
	}
	p.qps[n&(qpnPageSize-1)].Store(reserved)
	p.used++
	t.count++
}

// put enters the QP of a reserved number.
func (t *qpTable) put(qp *transport.QP) {
	t.pages[qp.Num>>qpnPageBits].Load().qps[qp.Num&(qpnPageSize-1)].Store(qp)
}

// remove frees a number.
func (t *qpTable) remove(n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.pages[n>>qpnPageBits].Load()
	p.qps[n&(qpnPageSize-1)].Store(nil)
	t.count--
	if p.used--; p.used == 0 {
		t.pages[n>>qpnPageBits].Store(nil) // whoever still looks at it finds nothing
	}
}

// all goes over the QPs that exist.
func (t *qpTable) all() iter.Seq[*transport.QP] {
	return func(yield func(*transport.QP) bool) {
		for i := range t.pages {
			p := t.pages[i].Load()
			if p == nil {
				continue
			}
			for j := range p.qps {
				if qp := p.qps[j].Load(); qp != nil && qp != reserved && !yield(qp) {
					return
				}
			}
		}
	}
}
