package engine

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// CQUpcalls is how a CQ reports to the layer above. The upcalls do not block or call back.
type CQUpcalls interface {
	// Completion says that the event which Arm asked for has come.
	Completion()
	// Error says that the CQ overflowed.
	Error()
}

// Errors of a CQ.
var (
	ErrCQOverrun = errors.New("the completion queue has overflowed: a completion came while it was full")
	ErrCQTooFew  = errors.New("the completion queue holds more completions than that")
)

// arming is the state of a CQ's notification request.
type arming uint8

const (
	disarmed arming = iota
	armedSolicited
	armedNext
)

// A CQ is a completion queue: a ring that shards fill and pollers empty. Polling it also runs
// the shards whose QPs complete into it.
type CQ struct {
	eng     *Engine
	up      CQUpcalls
	vector  int
	shards  atomic.Uint64 // a bit for each shard that has QPs on this CQ
	polls   atomic.Uint32 // that found something
	idle    patience
	sleeper atomic.Pointer[sleeper] // made when a poller sleeps for the first time

	mu     sync.Mutex
	ring   []transport.CQE // a power of two long
	stamps []Stamp         // of the same entries; nil unless times are kept
	cap    uint32
	head   uint32 // the oldest; indices run freely
	tail   uint32
	some   atomic.Bool // tail != head, for a look without the lock; written only when that changes, for a store costs as much as a lock
	armed  atomic.Uint32
	broken atomic.Bool
	users  [MaxShards]int32 // queues of QPs by shard
	mod    moderation

	overwrite bool                  // instead of breaking when it is full
	batch     atomic.Pointer[batch] // made by the first Next
}

// NewCQ makes a CQ for at least cqe completions. A vector other than 0 chooses the shard of that number
// for the QPs that complete into it (V-CQ-08); with 0 the engine chooses.
func (e *Engine) NewCQ(cqe, vector int, up CQUpcalls) *CQ {
	n := ceilPow2(cqe)
	return &CQ{eng: e, up: up, vector: vector, ring: make([]transport.CQE, n), cap: uint32(n), idle: patience{slow: e.slow}}
}

// Cap is how many completions the CQ holds.
func (cq *CQ) Cap() int {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return int(cq.cap)
}

// Push appends a completion. It is called with the shard of e.QP held, if there is one.
func (cq *CQ) Push(e *transport.CQE) {
	cq.mu.Lock()
	if cq.broken.Load() {
		cq.mu.Unlock()
		return
	}
	if cq.tail-cq.head == cq.cap && cq.overwrite {
		cq.dropOldest()
	}
	if cq.tail-cq.head == cq.cap {
		cq.broken.Store(true)
		wake := arming(cq.armed.Swap(uint32(disarmed))) != disarmed
		cq.mu.Unlock()
		cq.overrun(wake)
		return
	}
	cq.ring[cq.tail&(cq.cap-1)] = *e
	if cq.stamps != nil {
		cq.stamps[cq.tail&(cq.cap-1)] = cq.stamp()
	}
	if cq.tail == cq.head {
		cq.some.Store(true)
	}
	cq.tail++
	wake := false
	switch arming(cq.armed.Load()) {
	case armedNext:
		wake = true
	case armedSolicited:
		wake = e.Solicited || e.Status != transport.Success
	case disarmed:
	}
	if wake && cq.mod.on() && e.QP != nil {
		wake = cq.due(e.QP)
	}
	if wake {
		cq.mod.forget()
		cq.armed.Store(uint32(disarmed))
	}
	cq.mu.Unlock()
	if cq.eng.sleepers.count.Load() != 0 {
		cq.eng.sleepers.wake()
	}
	if wake {
		cq.up.Completion()
	}
}

// overrun reports the overflow. The QPs that use the CQ go to ERR (V-AE-19) when their shards come to
// it: this one is in the middle of a QP's work. Whoever sleeps on the CQ is woken, to find the error.
func (cq *CQ) overrun(wake bool) {
	cq.up.Error()
	if wake {
		cq.up.Completion()
	}
	for m := range bitsOf(cq.shards.Load()) {
		s := cq.eng.shards[m]
		s.cqBroke.Store(true)
		s.kick()
	}
}

// pop moves at most n completions out, oldest first, passing each to take with its number from 0 on, and frees
// the queue slots that they stand for.
func (cq *CQ) pop(n int, take func(i int, e *transport.CQE)) int {
	b := cq.batch.Load()
	if b == nil && !cq.some.Load() {
		return 0
	}
	cq.mu.Lock()
	got := 0
	if b != nil {
		got = b.takeOut(n, take)
	}
	got += cq.takeOut(n-got, got, take)
	cq.mu.Unlock()
	return got
}

// takeOut is pop for what is in the ring; numbers begin with first. The CQ is locked.
func (cq *CQ) takeOut(n, first int, take func(i int, e *transport.CQE)) int {
	n = min(n, int(cq.tail-cq.head))
	var f freed
	for i := range n {
		e := &cq.ring[cq.head&(cq.cap-1)]
		take(first+i, e)
		f.add(e)
		forget(e)
		cq.head++
	}
	f.flush()
	cq.emptied()
	return n
}

// emptied notes that nothing is left, if that is so. The CQ is locked.
func (cq *CQ) emptied() {
	if cq.head == cq.tail {
		cq.some.Store(false)
	}
}

// dropOldest takes the oldest completion away. The CQ is locked.
func (cq *CQ) dropOldest() {
	e := &cq.ring[cq.head&(cq.cap-1)]
	release(e)
	forget(e)
	cq.head++
}

// forget drops what a completion points to.
func forget(e *transport.CQE) {
	disown(e)
	e.Cause = nil
}

// disown drops the queues that a completion points to.
func disown(e *transport.CQE) { e.QP, e.SQ, e.SRQ, e.Tags = nil, nil, nil, nil }

// release gives the queue slots back that a completion stands for. It runs under the CQ's lock, so that purge
// knows that no slot of a QP comes back after it.
func release(e *transport.CQE) {
	var f freed
	f.add(e)
	f.flush()
}

// freed is the queue slots that several completions stand for, so that a queue to which some in a row belong hears of them once.
type freed struct {
	sq   *transport.SendQueue
	slot uint32 // the last one
	rq   *transport.RecvQueue
	n    uint32
}

func (f *freed) add(e *transport.CQE) {
	switch {
	case e.SQ != nil:
		f.sent(e.SQ, e.Slot)
	case e.Send:
		f.sent(e.QP.SQ, e.Slot)
	case e.Tags != nil:
		e.Tags.Polled(e.Op)
	case e.SRQ != nil:
		f.received(e.SRQ)
	default:
		f.received(e.QP.RQ)
	}
}

func (f *freed) sent(q *transport.SendQueue, slot uint32) {
	if f.sq != q {
		f.flush()
		f.sq = q
	}
	f.slot = slot
}

func (f *freed) received(q *transport.RecvQueue) {
	if f.rq != q {
		f.flush()
		f.rq = q
	}
	f.n++
}

// flush gives the slots back.
func (f *freed) flush() {
	if f.sq != nil {
		f.sq.Release(f.slot)
	}
	if f.rq != nil {
		f.rq.Release(f.n)
	}
	*f = freed{}
}

// Polls that find completions let the shards run once in so many, so that a program which is slower
// than its peers still acknowledges and sends.
const pollsPerStep = 16

// Poll takes at most n completions, oldest first, and passes each to take, under the CQ's lock, with its number from 0
// on. It runs the shards of the CQ's QPs when it has nothing, and now and then when it has. Its
// error is ErrCQOverrun, once nothing is left of what came before the overflow (D-45).
func (cq *CQ) Poll(n int, take func(i int, e *transport.CQE)) (int, error) {
	if got := cq.pop(n, take); got > 0 {
		if cq.polls.Add(1)%pollsPerStep == 0 {
			cq.progress()
		}
		return got, nil
	}
	cq.progress()
	got := cq.pop(n, take)
	if got > 0 {
		cq.idle.hit()
		return got, nil
	}
	return 0, cq.nothing()
}

// nothing ends a poll that found nothing.
func (cq *CQ) nothing() error {
	if cq.broken.Load() {
		return ErrCQOverrun
	}
	cq.idle.miss(cq)
	return nil
}

// progress runs every shard that has QPs on this CQ and is not being run. A poll of an armed CQ is the last
// look before sleeping (V-EV-06), so it does not keep the background goroutines away.
func (cq *CQ) progress() {
	m := cq.shards.Load()
	if m == 0 {
		return
	}
	now := cq.eng.now()
	active := arming(cq.armed.Load()) == disarmed
	for i := range bitsOf(m) {
		cq.eng.shards[i].poll(now, active)
	}
}

// Arm asks for one event at the next completion, or at the next solicited or unsuccessful one (V-NTF-01 to 05). A request
// for the next completion is not weakened by one for solicited ones. The caller is about to sleep, so the shards' background
// goroutines take over.
func (cq *CQ) Arm(solicitedOnly bool) error {
	cq.mu.Lock()
	if cq.broken.Load() {
		cq.mu.Unlock()
		return ErrCQOverrun
	}
	if !solicitedOnly {
		cq.armed.Store(uint32(armedNext))
	} else if arming(cq.armed.Load()) == disarmed {
		cq.armed.Store(uint32(armedSolicited))
	}
	cq.mu.Unlock()
	for i := range bitsOf(cq.shards.Load()) {
		cq.eng.shards[i].handOver()
	}
	return nil
}

// Resize makes room for at least cqe completions. What the CQ holds and its notification request stay.
func (cq *CQ) Resize(cqe int) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	held := cq.tail - cq.head
	if uint32(cqe) < held {
		return ErrCQTooFew
	}
	n := uint32(ceilPow2(cqe))
	if n == cq.cap {
		return nil
	}
	cq.ring = unroll(cq.ring, cq.head, held, n)
	if cq.stamps != nil {
		cq.stamps = unroll(cq.stamps, cq.head, held, n)
	}
	cq.cap, cq.head, cq.tail = n, 0, held
	return nil
}

// unroll copies the entries of a ring, held of them from head on, to the beginning of one of n.
func unroll[T any](ring []T, head, held, n uint32) []T {
	next := make([]T, n)
	for i := range held {
		next[i] = ring[(head+i)&uint32(len(ring)-1)]
	}
	return next
}

// purge removes the completions of qp, freeing their queue slots. The caller holds qp's
// shard, so that no new ones come (V-QPS-03).
func (cq *CQ) purge(qp *transport.QP) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.QP == qp })
}

// PurgeSRQ is purgeSRQ for an SRQ whose QPs are gone.
func (cq *CQ) PurgeSRQ(q *transport.RecvQueue) { cq.purgeSRQ(q) }

// PurgeSQ removes the completions of a send queue that belongs to no QP of the engine.
func (cq *CQ) PurgeSQ(q *transport.SendQueue) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.SQ == q })
}

// Broken tells whether the CQ has overflowed.
func (cq *CQ) Broken() bool { return cq.broken.Load() }

// purgeSRQ removes the completions of an SRQ into which nothing is received any more.
func (cq *CQ) purgeSRQ(q *transport.RecvQueue) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.SRQ == q })
}

func (cq *CQ) purgeIf(gone func(*transport.CQE) bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if b := cq.batch.Load(); b != nil {
		b.purge(gone)
	}
	to := cq.head
	for i := cq.head; i != cq.tail; i++ {
		e := &cq.ring[i&(cq.cap-1)]
		if gone(e) {
			release(e)
			continue
		}
		if to != i {
			cq.ring[to&(cq.cap-1)] = *e
			if cq.stamps != nil {
				cq.stamps[to&(cq.cap-1)] = cq.stamps[i&(cq.cap-1)]
			}
		}
		to++
	}
	for i := to; i != cq.tail; i++ {
		cq.ring[i&(cq.cap-1)] = transport.CQE{}
	}
	cq.tail = to
	cq.emptied()
}

// attach and detach count the queues of shard s's QPs that complete into the CQ.
func (cq *CQ) attach(s *shard) { cq.use(s, 1) }
func (cq *CQ) detach(s *shard) { cq.use(s, -1) }

func (cq *CQ) use(s *shard, n int32) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.users[s.index] += n
	if cq.users[s.index] > 0 {
		cq.shards.Or(1 << s.index)
	} else {
		cq.shards.And(^uint64(1 << s.index))
	}
}

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
