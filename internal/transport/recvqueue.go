package transport

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/prefetch"
)

// RecvWQE is a posted receive.
type RecvWQE struct {
	WRID uint64
	SGEs []SGE
}

// RecvQueue is a receive queue of one QP or shared by several (SRQ). Like a SendQueue it restarts at its first slot
// when nothing is outstanding. The fields from slots to limit are guarded by mu, except the atomics.
//
// The receives of a QP's own queue are taken without mu: by one goroutine at a time, the holder of the QP's shard,
// which owns taken. It reads only slots before posted. They do not change until the completion of their receive was
// polled, and neither do base, mask, maxSGE and slots, but by Resize and Clear, whose caller is the holder.
type RecvQueue struct {
	mu sync.Mutex
	// +checklocks:mu
	slots []SGE // for each receive a head and maxSGE SGEs; see at
	// +checklocks:mu
	base uint32
	// +checklocks:mu
	mask uint32
	// +checklocks:mu
	fill uint32
	// +checklocks:mu
	taken  uint32
	posted atomic.Uint32 // fill as of the last Unlock; not of an SRQ
	polled atomic.Uint32 // number of requests whose completion was polled
	// +checklocks:mu
	maxSGE uint16
	shared bool

	// +checklocks:mu
	limit uint32 // SRQ: raise the event when fewer are posted; 0: not armed
	pd    uint32
	tags  *TagList // of a tag-matching SRQ, else nil
	// OnLimit is called without locks when an armed limit is reached.
	OnLimit func()
}

// UsedOfRQ is the length of the fields of a RecvQueue that each message uses.
const UsedOfRQ = unsafe.Offsetof(RecvQueue{}.limit)

// NewRecvQueue returns a queue of at least wrs slots, rounded up to a power of two, with sges SGEs each. shared makes
// it an SRQ, whose buffers belong to protection domain pd.
func NewRecvQueue(wrs, sges int, shared bool, pd uint32) *RecvQueue {
	q := new(RecvQueue)
	q.Init(wrs, sges, shared, pd)
	return q
}

// Init makes a zero queue one of NewRecvQueue.
//
// +checklocksignore: no other goroutine knows the queue
func (q *RecvQueue) Init(wrs, sges int, shared bool, pd uint32) {
	n := CeilPow2(wrs)
	q.slots, q.mask = make([]SGE, n*(1+sges)), uint32(n-1)
	q.maxSGE, q.shared, q.pd = uint16(sges), shared, pd
}

// at returns the slot of receive i: the head, whose Addr is the WRID and whose Length the number of SGEs, and the space
// for the SGEs. They are in one array so that a receive with one SGE is in one cache line.
//
// +checklocks:q.mu
func (q *RecvQueue) at(i uint32) (head *SGE, room []SGE) {
	n := 1 + int(q.maxSGE)
	slot := q.slots[int((i-q.base)&q.mask)*n:]
	return &slot[0], slot[1:n]
}

// store writes receive i to its slot.
//
// +checklocks:q.mu
func (q *RecvQueue) store(i uint32, wrid uint64, sges []SGE) {
	head, room := q.at(i)
	head.Addr = wrid
	if len(sges) == 1 && len(room) > 0 { // most receives
		head.Length, room[0] = 1, sges[0]
		return
	}
	head.Length = uint32(copy(room, sges))
}

// Cap returns the maximum number of outstanding receives.
func (q *RecvQueue) Cap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.mask) + 1
}

// MaxSGE returns the maximum number of SGEs of a receive.
func (q *RecvQueue) MaxSGE() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.maxSGE)
}

// Shared reports whether the queue is an SRQ.
func (q *RecvQueue) Shared() bool { return q.shared }

// PD returns the protection domain of an SRQ's buffers.
func (q *RecvQueue) PD() uint32 { return q.pd }

// Lock and Unlock bracket calls of Put.
//
// +checklocksacquire:q.mu
func (q *RecvQueue) Lock() { q.mu.Lock() }

// +checklocksrelease:q.mu
func (q *RecvQueue) Unlock() {
	if !q.shared {
		q.posted.Store(q.fill)
	}
	q.mu.Unlock()
}

// Post appends a receive with at most MaxSGE SGEs, which are copied.
func (q *RecvQueue) Post(wrid uint64, sges []SGE) error {
	q.Lock()
	err := q.Put(wrid, sges)
	q.Unlock()
	return err
}

// Put is Post for a caller that holds Lock.
//
// +checklocks:q.mu
func (q *RecvQueue) Put(wrid uint64, sges []SGE) error {
	switch polled := q.polled.Load(); {
	case q.fill-polled > q.mask:
		return ErrQueueFull
	case q.fill == polled:
		q.base = q.fill
	}
	q.store(q.fill, wrid, sges)
	q.fill++
	return nil
}

// Take moves the oldest posted receive to w, whose SGEs array is reused. It returns false if none is posted.
func (q *RecvQueue) Take(w *RecvWQE) bool {
	ok, _ := q.takeFor(w, 0)
	return ok
}

// takeFor is Take for a message of n bytes. A receive with less room stays in the queue, and small is true.
func (q *RecvQueue) takeFor(w *RecvWQE, n uint64) (ok, small bool) {
	if q.shared {
		return q.takeShared(w, n)
	}
	return q.takeOwn(w, n)
}

// takeOwn is takeFor for the queue of one QP.
//
// +checklocksignore: see RecvQueue
func (q *RecvQueue) takeOwn(w *RecvWQE, n uint64) (ok, small bool) {
	if q.posted.Load() == q.taken {
		return false, false
	}
	ok = q.move(w, n)
	return ok, !ok
}

// peekOne returns the oldest receive of a QP's own queue if it has one SGE, without taking it. Otherwise, or if none is
// posted, sge is nil.
//
// +checklocksignore: see RecvQueue
func (q *RecvQueue) peekOne() (wrid uint64, sge *SGE) {
	if q.shared || q.posted.Load() == q.taken {
		return 0, nil
	}
	head, room := q.at(q.taken)
	if head.Length != 1 {
		return 0, nil
	}
	return head.Addr, &room[0]
}

// takePeeked takes the receive that peekOne has returned.
//
// +checklocksignore: see RecvQueue
func (q *RecvQueue) takePeeked() { q.taken++ }

// prefetch asks for the oldest receive of a QP's own queue.
//
// +checklocksignore: see RecvQueue
func (q *RecvQueue) prefetch() {
	if q.posted.Load() != q.taken {
		head, _ := q.at(q.taken)
		prefetch.Value(head)
	}
}

// takeShared is takeFor for an SRQ.
func (q *RecvQueue) takeShared(w *RecvWQE, n uint64) (ok, small bool) {
	q.mu.Lock()
	if q.fill == q.taken {
		q.mu.Unlock()
		return false, false
	}
	if !q.move(w, n) {
		q.mu.Unlock()
		return false, true
	}
	hit := q.limit > 0 && q.fill-q.taken < q.limit
	if hit {
		q.limit = 0
	}
	q.mu.Unlock()
	if hit && q.OnLimit != nil {
		q.OnLimit()
	}
	return true, false
}

// move moves the oldest receive, which exists, to w. It returns false if the receive has no room for n bytes.
//
// +checklocks:q.mu
func (q *RecvQueue) move(w *RecvWQE, n uint64) bool {
	head, sges := q.at(q.taken)
	sges = sges[:head.Length]
	if n > 0 && roomOf(sges) < n {
		return false
	}
	w.WRID = head.Addr
	w.SGEs = append(w.SGEs[:0], sges...)
	q.taken++
	return true
}

// putBack makes w, which Take returned and which has no completion yet, the oldest posted receive again, because its
// message was lost or revoked. Its slot is free: at most Cap receives have no polled completion, and w is one of them.
func (q *RecvQueue) putBack(w *RecvWQE) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	q.store(q.taken, w.WRID, w.SGEs)
}

// roomOf returns the number of bytes that fit into the SGEs.
func roomOf(sges []SGE) (n uint64) {
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// Posted returns the number of receives that have not been taken. Only the goroutine that takes those of a QP's own
// queue may call it.
func (q *RecvQueue) Posted() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.fill - q.taken)
}

// Release frees the slots of n receives whose completions were polled.
func (q *RecvQueue) Release(n uint32) { q.polled.Add(n) }

// Clear empties the queue (RESET).
func (q *RecvQueue) Clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = q.fill
	q.polled.Store(q.fill)
}
