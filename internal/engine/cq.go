package engine

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/spin"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// CQUpcalls is how a CQ reports to the layer above. The upcalls must not block or call back.
type CQUpcalls interface {
	// Completion reports the completion event that Arm requested.
	Completion()
	// Error reports that the CQ overflowed.
	Error()
}

// Errors of a CQ.
var (
	ErrCQOverrun = errors.New("the completion queue has overflowed: a completion arrived while it was full")
	ErrCQTooFew  = errors.New("the completion queue holds more completions than the new size")
)

// arming is the state of a CQ's notification request.
type arming uint8

const (
	disarmed arming = iota
	armedSolicited
	armedNext
)

// A CQ is a completion queue: a ring that shards write and pollers read. Polling it also runs the shards whose QPs
// complete into it. The fields from ring on are guarded by mu, except the atomics.
type CQ struct {
	eng     *Engine
	up      CQUpcalls
	vector  int
	shards  atomic.Uint64           // a bit for each shard with QPs on this CQ
	outside atomic.Pointer[outside] // nil unless QPs that no shard runs complete into it
	polls   atomic.Uint32           // number of successful polls
	idle    spin.Budget
	sleeper atomic.Pointer[sleeper] // nil until a poller first sleeps

	mu sync.Mutex
	// +checklocks:mu
	ring []transport.CQE // its length is a power of two, or 0, and grows up to cap
	// +checklocks:mu
	stamps []Stamp // of the entries; nil unless times are kept
	// Set before the CQ is used.
	times     bool // times are kept
	overwrite bool // on overflow drop the oldest completion
	lateArm   bool // as CountMissed says
	// +checklocks:mu
	cap uint32
	// +checklocks:mu
	head uint32 // index of the oldest entry; masked on use
	// +checklocks:mu
	tail uint32
	// Entries before it raise no event when the CQ is armed: the last event was for them. From head to tail.
	// +checklocks:mu
	seen   uint32
	some   atomic.Bool // tail != head; written only on change, since a store costs as much as a lock
	armed  atomic.Uint32
	broken atomic.Bool
	// +checklocks:mu
	users []int32 // number of QP queues per shard; begins in few
	few   [2]int32
	// +checklocks:mu
	mod moderation

	batch atomic.Pointer[batch] // nil until the first Next
}

// InitCQ makes a zero CQ one for at least cqe completions. A vector other than 0 selects the shard of the QPs that
// complete into it, modulo the shard count (V-CQ-08); with 0 the engine selects one. The CQ is part of an object of the
// caller, as the QP of CreateQP is.
//
// +checklocksignore: nobody else has the CQ yet
func (e *Engine) InitCQ(cq *CQ, cqe, vector int, up CQUpcalls) {
	cq.eng, cq.up, cq.vector, cq.cap = e, up, vector, uint32(transport.CeilPow2(cqe))
	cq.idle = spin.NewBudget(e.slowdown)
	cq.users = cq.few[:]
}

// Cap returns the number of completions that the CQ holds.
func (cq *CQ) Cap() int {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	return int(cq.cap)
}

// Push appends a completion. The shard of e.QP, if any, is held.
func (cq *CQ) Push(e *transport.CQE) {
	if e.QP != nil {
		if s, ok := e.QP.Host.(*shard); ok && s.caught.of == cq && s.caught.put(e) {
			return
		}
	}
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
	if int(cq.tail-cq.head) == len(cq.ring) {
		cq.resize(max(2*uint32(len(cq.ring)), leastRing))
	}
	at := cq.tail & uint32(len(cq.ring)-1)
	cq.ring[at] = *e
	if cq.times {
		cq.stamps[at] = cq.stamp()
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
		wake = wakesSolicited(e)
	case disarmed:
	}
	if wake && cq.mod.on() && e.QP != nil {
		wake = cq.due(e.QP)
	}
	if wake {
		cq.disarm()
	}
	cq.mu.Unlock()
	if cq.eng.sleepers.count.Load() != 0 {
		cq.eng.sleepers.wake()
	}
	if wake {
		cq.signal(e.QP)
	}
}

// overrun reports the overflow. The QPs of the CQ enter ERR (V-AE-19) when their shards run next: the current shard
// is in the middle of a QP's work. A program that waits for an event is woken and finds the error.
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

// pop passes at most n completions to take, oldest first, numbered from first, and frees their queue slots.
func (cq *CQ) pop(n, first int, take func(i int, e *transport.CQE)) int {
	b := cq.batch.Load()
	if b == nil && !cq.some.Load() {
		return 0
	}
	cq.mu.Lock()
	got := 0
	if b != nil {
		got = b.takeOut(n, first, take)
	}
	got += cq.takeOut(n-got, first+got, take)
	cq.mu.Unlock()
	return got
}

// takeOut is pop for the ring. Numbers start at first. The CQ is locked.
//
// +checklocks:cq.mu
func (cq *CQ) takeOut(n, first int, take func(i int, e *transport.CQE)) int {
	n = min(n, int(cq.tail-cq.head))
	var f freed
	for i := range n {
		e := &cq.ring[cq.head&uint32(len(cq.ring)-1)]
		take(first+i, e)
		f.add(e)
		forget(e)
		cq.head++
	}
	f.flush()
	cq.emptied()
	cq.pastSeen()
	return n
}

// emptied sets some after entries were taken out. The CQ is locked.
//
// +checklocks:cq.mu
func (cq *CQ) emptied() {
	if some := cq.head != cq.tail; some != cq.some.Load() {
		cq.some.Store(some)
	}
}

// dropOldest drops the oldest completion. The CQ is locked.
//
// +checklocks:cq.mu
func (cq *CQ) dropOldest() {
	e := &cq.ring[cq.head&uint32(len(cq.ring)-1)]
	release(e)
	forget(e)
	cq.head++
	cq.pastSeen()
}

// forget clears the pointers of a completion.
func forget(e *transport.CQE) {
	dropQueues(e)
	e.Cause = nil
}

// dropQueues clears the queue pointers of a completion.
func dropQueues(e *transport.CQE) { e.QP, e.SQ, e.RQ, e.Tags = nil, nil, nil, nil }

// release frees the queue slots of a completion that the program does not get. It runs under the CQ's lock, so no slot
// of a QP is freed after purge.
func release(e *transport.CQE) {
	e.Lose()
	var f freed
	f.add(e)
	f.flush()
}

// freed accumulates freed queue slots, so that a queue is updated once for several consecutive completions.
type freed struct {
	sq   *transport.SendQueue
	slot uint32 // the last slot
	rq   *transport.RecvQueue
	n    uint32
}

func (f *freed) add(e *transport.CQE) {
	switch {
	case e.SQ != nil:
		f.sent(e.SQ, e.Slot)
	case e.Send:
		f.sent(&outer(e.QP).OwnSQ, e.Slot)
	case e.Tags != nil:
		e.Tags.Polled(e)
	default:
		f.received(e.RQ)
	}
}

func (f *freed) sent(q *transport.SendQueue, slot uint32) {
	if f.sq != q {
		if f.sq != nil {
			f.sq.Release(f.slot)
		}
		f.sq = q
	}
	f.slot = slot
}

func (f *freed) received(q *transport.RecvQueue) {
	if f.rq != q {
		if f.rq != nil {
			f.rq.Release(f.n)
		}
		f.rq, f.n = q, 0
	}
	f.n++
}

// flush frees the accumulated slots. f is not used afterwards.
func (f *freed) flush() {
	if f.sq != nil {
		f.sq.Release(f.slot)
	}
	if f.rq != nil {
		f.rq.Release(f.n)
	}
}

// pollsPerStep is the number of successful polls after which the shards run once, so that a program slower than its
// peers still acknowledges and sends.
const pollsPerStep = 16

// Poll takes at most n completions, oldest first, and passes each to take, numbered from 0. take must not call the CQ
// or a QP. Poll runs the shards of the CQ's QPs when the ring is empty, and after every pollsPerStep successful polls.
// After an overflow it returns ErrCQOverrun once the older completions are taken (D-45).
func (cq *CQ) Poll(n int, take func(i int, e *transport.CQE)) (int, error) {
	if got := cq.pop(n, 0, take); got > 0 {
		if cq.polls.Add(1)%pollsPerStep == 0 {
			cq.progress()
		}
		return got, nil
	}
	got := cq.run(n, take)
	got += cq.pop(n-got, got, take)
	if got > 0 {
		cq.idle.Hit()
		return got, nil
	}
	return 0, cq.empty()
}

// empty ends a poll that found nothing.
func (cq *CQ) empty() error {
	if cq.broken.Load() {
		return ErrCQOverrun
	}
	cq.idle.Miss(poller{cq})
	return nil
}

// progress runs every shard with QPs on this CQ that is not held. The completions enter the ring.
func (cq *CQ) progress() { cq.run(0, nil) }

// run is progress for a poller: it passes at most n of the completions that come meanwhile to take, numbered from 0,
// and returns their number. The others enter the ring. A poll of an armed CQ is the last one before sleeping (V-EV-06),
// so it does not count as active polling.
func (cq *CQ) run(n int, take func(i int, e *transport.CQE)) (got int) {
	active := arming(cq.armed.Load()) == disarmed
	if o := cq.outside.Load(); o != nil {
		o.Poll(active)
	}
	m := cq.shards.Load()
	if m == 0 {
		return 0
	}
	now := cq.eng.now()
	for ; m != 0; m &= m - 1 {
		got += cq.eng.shards[bits.TrailingZeros64(m)].pollFor(cq, now, active, n-got, got, take)
	}
	return got
}

// Arm requests one event at the next completion, or at the next solicited or failed one (V-NTF-01 to 05). A request
// for solicited completions does not replace one for any completion. The caller is about to sleep, so the background
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
	wake := cq.lateArm && cq.missed()
	if wake {
		cq.disarm()
	}
	cq.mu.Unlock()
	if wake {
		cq.up.Completion()
	}
	cq.handOver()
	return nil
}

// Resize changes the size to at least cqe completions. Completions and the notification request are kept. Requests that
// were posted before it count, though their shard was held, as they do on an adapter, which takes them at once.
func (cq *CQ) Resize(cqe int) error {
	for i := range bitsOf(cq.shards.Load()) {
		s := cq.eng.shards[i]
		s.hold()
		s.now = cq.eng.now()
		s.serve() // here, since release may leave it to another goroutine
		s.release()
	}
	cq.mu.Lock()
	defer cq.mu.Unlock()
	held := cq.tail - cq.head
	if uint32(cqe) < held {
		return ErrCQTooFew
	}
	cq.cap = uint32(transport.CeilPow2(cqe))
	if int(cq.cap) < len(cq.ring) {
		cq.resize(cq.cap)
	}
	return nil
}

// leastRing is the length of the ring of a CQ that gets its first completion.
const leastRing = 4

// resize changes the length of the ring to n, or cap if that is less. The ring of a CQ that is never full stays
// shorter: programs with many connections have many CQs that hold a few completions at a time.
//
// +checklocks:cq.mu
func (cq *CQ) resize(n uint32) {
	n = min(n, cq.cap)
	held := cq.tail - cq.head
	cq.ring = unroll(cq.ring, cq.head, held, n)
	if cq.times {
		cq.stamps = unroll(cq.stamps, cq.head, held, n)
	}
	cq.head, cq.tail, cq.seen = 0, held, cq.seen-cq.head
}

// unroll copies held entries of a ring, from head on, to the start of a ring of n entries.
func unroll[T any](ring []T, head, held, n uint32) []T {
	next := make([]T, n)
	for i := range held {
		next[i] = ring[(head+i)&uint32(len(ring)-1)]
	}
	return next
}

// purge removes the completions of qp and frees their queue slots. The caller holds qp's shard, so no new ones arrive
// (V-QPS-03).
func (cq *CQ) purge(qp *transport.QP) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.QP == qp })
}

// PurgeSRQ removes the completions of an SRQ that receives nothing any more.
func (cq *CQ) PurgeSRQ(q *transport.RecvQueue) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.RQ == q })
}

// PurgeSQ removes the completions of a send queue whose QP is not run by the engine.
func (cq *CQ) PurgeSQ(q *transport.SendQueue) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.SQ == q })
}

// PurgeNum removes the completions of a QP that is not run by the engine.
func (cq *CQ) PurgeNum(qpn uint32) {
	cq.purgeIf(func(e *transport.CQE) bool { return e.QP == nil && e.QPN == qpn })
}

// Broken reports whether the CQ has overflowed.
func (cq *CQ) Broken() bool { return cq.broken.Load() }

func (cq *CQ) purgeIf(gone func(*transport.CQE) bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if b := cq.batch.Load(); b != nil {
		b.purge(gone)
	}
	to, mask := cq.head, uint32(len(cq.ring)-1)
	seen := cq.seen
	for i := cq.head; i != cq.tail; i++ {
		if i == seen {
			cq.seen = to
		}
		e := &cq.ring[i&mask]
		if gone(e) {
			release(e)
			continue
		}
		if to != i {
			cq.ring[to&mask] = *e
			if cq.times {
				cq.stamps[to&mask] = cq.stamps[i&mask]
			}
		}
		to++
	}
	for i := to; i != cq.tail; i++ {
		cq.ring[i&mask] = transport.CQE{}
	}
	if seen == cq.tail {
		cq.seen = to
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
	if short := s.index + 1 - len(cq.users); short > 0 {
		cq.users = append(cq.users, make([]int32, short)...)
	}
	cq.users[s.index] += n
	if cq.users[s.index] > 0 {
		cq.shards.Or(1 << s.index)
	} else {
		cq.shards.And(^uint64(1 << s.index))
	}
}
