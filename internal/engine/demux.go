package engine

import (
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/numbered"
	"github.com/verbena-rdma/verbena/internal/secret"
	"github.com/verbena-rdma/verbena/internal/transport"
)

const (
	// minQPN is the first number for ordinary QPs; those below are for QP0, QP1 and what may come.
	minQPN = 0x10
	maxQPN = 1<<24 - 2 // the last one means multicast
)

// Errors of QP creation.
var (
	ErrQPLimit = errors.New("the device has no free queue pair")
	ErrQPInUse = errors.New("the queue pair number is in use")
	// ErrNotShared: a guest has the number that its home has chosen, so that both must number their QPs differently.
	ErrNotShared = errors.New("the processes of the device do not share its address")
)

// qpTable finds a QP by its number. Looking up takes no lock.
type qpTable struct {
	mu  sync.Mutex // guards changes
	qps numbered.Table[transport.QP]
	// +checklocks:mu
	many, veryMany bool // counted in crowded and packed
	// +checklocks:mu
	closed bool
	whole  span // the numbers of a link that does not lead packets by them
	max    int
}

// get returns the QP of a number, nil if there is none.
func (t *qpTable) get(qpn uint32) *transport.QP {
	if qp := t.qps.Get(qpn); qp != reserved {
		return qp
	}
	return nil
}

// reserve finds a free number that leaves shard when divided by shards, and counts it as used.
func (t *qpTable) reserve(shard, shards uint32) (uint32, error) {
	return t.take(&t.whole, func(n uint32) bool { return n%shards == shard })
}

// reserveIn is reserve for the numbers of a span.
func (t *qpTable) reserveIn(s *span) (uint32, error) {
	return t.take(s, func(uint32) bool { return true })
}

// A span is a range of QP numbers. All others of it are given before one is given again: stray packets of its last
// connection may still be under way. Unless the first number is fixed, the order is secret: a number is half of what a
// packet must have to be taken for the peer's.
type span struct {
	first, last uint32
	next        uint32           // the next number, if order is nil
	order       *secret.Sequence // counts from first
}

// newSpan is the range without the numbers that have a meaning of their own. It begins with number start, and goes on
// in order, or at random if start is 0. Where start lies outside, the first number stands for it.
func newSpan(first, last, start uint32) span {
	s := span{first: max(first, minQPN), last: min(last, maxQPN), next: start}
	if start == 0 {
		s.order = secret.NewSequence(s.last-s.first+1, nil)
	}
	return s
}

// draw returns the next number, free or not.
func (s *span) draw() uint32 {
	if s.order != nil {
		return s.first + s.order.Next()
	}
	n := s.next
	if n < s.first || n > s.last {
		n = s.first
	}
	s.next = n + 1
	return n
}

// take reserves the next free number of a span that fits.
func (t *qpTable) take(s *span, fits func(uint32) bool) (uint32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.qps.Len() >= t.max {
		return 0, ErrQPLimit
	}
	for range s.last - s.first + 1 {
		if n := s.draw(); fits(n) && t.qps.Get(n) == nil {
			t.qps.Put(n, reserved)
			return n, nil
		}
	}
	return 0, ErrQPLimit
}

// reserveFixed reserves a given number below minQPN.
func (t *qpTable) reserveFixed(n uint32) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.qps.Get(n) != nil {
		return ErrQPInUse
	}
	t.qps.Put(n, reserved)
	return nil
}

// reserved is the table entry of a QP that is being created.
var reserved = new(transport.QP)

// put enters the QP of a reserved number.
func (t *qpTable) put(qp *transport.QP) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.qps.Put(qp.Num, qp)
	t.count()
}

// remove frees a number.
func (t *qpTable) remove(n uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.qps.Remove(n)
	t.count()
}

// close is for an engine that is closed; QPs may be left.
func (t *qpTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	t.count()
}

// count sets many and veryMany after a change.
//
// +checklocks:t.mu
func (t *qpTable) count() {
	n := t.qps.Len()
	if t.closed {
		n = 0
	}
	tally(&crowded, &t.many, n >= manyQPs)
	tally(&packed, &t.veryMany, n >= veryManyQPs)
}

// tally sets counted to is, and changes the number of those that are.
func tally(number *atomic.Int32, counted *bool, is bool) {
	if is == *counted {
		return
	}
	if *counted = is; is {
		number.Add(1)
	} else {
		number.Add(-1)
	}
}

// all goes over the QPs that exist, in the order of their numbers.
func (t *qpTable) all() iter.Seq[*transport.QP] {
	return func(yield func(*transport.QP) bool) {
		for _, qp := range t.qps.All() {
			if qp != reserved && !yield(qp) {
				return
			}
		}
	}
}
