package transport

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
)

// Errors of a queue pair.
var (
	// ErrQueueFull says that a queue holds as many outstanding work requests as it may.
	// A request is outstanding until its completion has been polled (V-GEN-06).
	ErrQueueFull = errors.New("the queue is full")
	ErrState     = errors.New("the queue pair's state does not allow posting to this queue")
	ErrMoved     = errors.New("the queue pair has moved to another state by itself")
)

// SendWQE is one slot of a send queue. The posting side fills the first part; the
// requester owns the second once the slot is posted. It is 128 bytes long, of which a device with
// many QPs has very many.
type SendWQE struct {
	WRID       uint64
	Op         Op
	Flags      SendFlags
	Imm        uint32 // immediate data, or the R_Key to invalidate; host order
	RemoteAddr uint64
	RKey       uint32
	Length     uint32 // of the whole message, bytes
	CompareAdd uint64
	Swap       uint64
	SGEs       []SGE  // the slot's own array, cut to length; empty for inline
	Inline     []byte // the slot's own bytes, cut to length; nil unless Flags has Inline
	*SendMore         // nil until SendQueue.More

	requesterWQE
}

// SendMore is what only some work requests have.
type SendMore struct {
	// UD.
	Path       *link.Path
	RemoteQPN  uint32
	RemoteQKey uint32
	// BindMW.
	Bind mr.Binding
	// XRC: the peer's SRQ.
	RemoteSRQN uint32
	// TSO: bytes of payload in each segment. The headers are in Inline.
	MSS uint16
}

// SendQueue is a QP's send queue: a ring between the posting goroutines, which hold Lock,
// and the requester. Indices run freely and are masked on use.
//
// A queue in which nothing is outstanding begins again at its first slot. So a queue that is never full
// uses, and keeps in the processor's caches, a few slots only. Nobody looks at a slot then: base is
// read for indices below posted only, which is stored after it.
type SendQueue struct {
	mu        sync.Mutex
	slots     []SendWQE
	sges      []SGE      // maxSGE for each slot
	inline    []byte     // maxInline for each slot
	more      []SendMore // one for each slot, or none at all
	mask      uint32
	cap       uint32
	maxSGE    int
	maxInline int
	base      uint32        // index of the first slot
	fill      uint32        // next slot to fill; under mu
	own       []atomic.Bool // of slots, by index: a request of the responder's was there and is done; nil until OwnSlots
	posted    atomic.Uint32 // slots before it belong to the requester
	polled    atomic.Uint32 // slots before it are free again
}

// NewSendQueue makes a queue of at least wrs slots (a power of two), each with room for sges SGEs and
// inline bytes. Slots that were never used take no memory yet: the pages were not touched.
func NewSendQueue(wrs, sges, inline int) *SendQueue {
	n := ceilPow2(wrs)
	return &SendQueue{
		slots: make([]SendWQE, n), sges: make([]SGE, n*sges), inline: make([]byte, n*inline),
		mask: uint32(n - 1), cap: uint32(n), maxSGE: sges, maxInline: inline,
	}
}

// Cap, MaxSGE and MaxInline are the queue's actual sizes. Free is how much of it the program should have.
func (q *SendQueue) Cap() int       { return int(q.cap) }
func (q *SendQueue) Free() int      { return int(q.cap) - ownOf(q) }
func (q *SendQueue) MaxSGE() int    { return q.maxSGE }
func (q *SendQueue) MaxInline() int { return q.maxInline }

// Lock and Unlock bracket the posting of work requests.
func (q *SendQueue) Lock()   { q.mu.Lock() }
func (q *SendQueue) Unlock() { q.mu.Unlock() }

// Next is the slot to fill, or nil when the queue is full. Its SGEs and Inline are empty
// but have their capacity. The caller holds Lock, fills the slot and calls Commit.
func (q *SendQueue) Next() *SendWQE {
	switch polled := q.polled.Load(); {
	case q.fill-polled >= q.cap:
		return nil
	case q.fill == polled:
		q.base = q.fill
	}
	if q.own != nil {
		q.own[q.fill&q.mask].Store(false)
	}
	i := int((q.fill - q.base) & q.mask)
	w, s, b := &q.slots[i], i*q.maxSGE, i*q.maxInline
	w.SGEs = q.sges[s : s : s+q.maxSGE]
	w.Inline = q.inline[b : b : b+q.maxInline]
	return w
}

// More gives w, the slot of Next, room for what only some requests have. The caller holds Lock.
func (q *SendQueue) More(w *SendWQE) *SendMore {
	if q.more == nil {
		q.more = make([]SendMore, q.cap)
	}
	w.SendMore = &q.more[(q.fill-q.base)&q.mask]
	return w.SendMore
}

// Commit hands the slot that Next returned to the requester once Publish is called.
func (q *SendQueue) Commit() { q.fill++ }

// Publish lets the requester see every committed slot.
func (q *SendQueue) Publish() { q.posted.Store(q.fill) }

// Abort forgets what was committed since the last Publish.
func (q *SendQueue) Abort() { q.fill = q.posted.Load() }

// Posted is the index after the last slot that the requester may take.
func (q *SendQueue) Posted() uint32 { return q.posted.Load() }

// At is the slot of index i.
func (q *SendQueue) At(i uint32) *SendWQE { return &q.slots[(i-q.base)&q.mask] }

// Release frees the slots up to and including slot, whose completion has been polled.
func (q *SendQueue) Release(slot uint32) {
	for {
		old := q.polled.Load()
		if int32(slot+1-old) <= 0 || q.polled.CompareAndSwap(old, slot+1) {
			break
		}
	}
	if q.own != nil {
		q.skipOwn()
	}
}

func ownOf(q *SendQueue) int {
	if q.own == nil {
		return 0
	}
	return OwnRequests
}

// OwnSlots prepares the queue for requests that the QP puts in itself, which nobody polls. It is called before the queue is used.
func (q *SendQueue) OwnSlots() { q.own = make([]atomic.Bool, q.cap) }

// releaseOwn frees such a slot as soon as all before it are free.
func (q *SendQueue) releaseOwn(slot uint32) {
	q.own[slot&q.mask].Store(true)
	q.skipOwn()
}

// skipOwn frees slots of such requests behind those that were polled.
func (q *SendQueue) skipOwn() {
	for {
		at := q.polled.Load()
		if at == q.posted.Load() || !q.own[at&q.mask].Load() {
			return
		}
		q.polled.CompareAndSwap(at, at+1)
	}
}

// room tells whether there is a place for n more requests.
func (q *SendQueue) room(n uint32) bool {
	return q.own != nil && q.posted.Load()+n-q.polled.Load() <= q.cap
}

// clear empties the queue (RESET) and returns the index at which it begins again.
func (q *SendQueue) clear() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.posted.Store(q.fill)
	q.polled.Store(q.fill)
	return q.fill
}

// Clear and RecvQueue.Clear empty queues of what is no QP of this package, such as those of raw packets.
func (q *SendQueue) Clear() uint32 { return q.clear() }

// RecvWQE is a posted receive.
type RecvWQE struct {
	WRID uint64
	SGEs []SGE
}

// recvSlot is a RecvWQE whose SGEs lie in the queue's array.
type recvSlot struct {
	wrid uint64
	sges int
}

// RecvQueue is a receive queue: of one QP, or shared by several (SRQ). As a SendQueue, it begins again
// at its first slot when nothing is outstanding.
type RecvQueue struct {
	mu     sync.Mutex
	slots  []recvSlot
	sges   []SGE // maxSGE for each slot
	base   uint32
	mask   uint32
	cap    uint32
	maxSGE int
	fill   uint32
	taken  uint32
	polled atomic.Uint32 // counts requests whose completion was polled
	limit  uint32        // SRQ: raise the event when fewer are posted; 0 = not armed
	shared bool
	pd     uint32
	tags   *TagList // of an SRQ that matches tags
	// OnLimit is called, with no lock held, when an armed limit is reached.
	OnLimit func()
}

// NewRecvQueue makes a queue of at least wrs slots with room for sges SGEs each.
// shared makes it an SRQ, whose buffers belong to protection domain pd.
func NewRecvQueue(wrs, sges int, shared bool, pd uint32) *RecvQueue {
	n := ceilPow2(wrs)
	return &RecvQueue{
		slots: make([]recvSlot, n), sges: make([]SGE, n*sges), mask: uint32(n - 1), cap: uint32(n),
		maxSGE: sges, shared: shared, pd: pd,
	}
}

// at is the place of receive i, and room for its SGEs.
func (q *RecvQueue) at(i uint32) (*recvSlot, []SGE) {
	n := int((i - q.base) & q.mask)
	return &q.slots[n], q.sges[n*q.maxSGE : (n+1)*q.maxSGE]
}

// store puts receive i in its place.
func (q *RecvQueue) store(i uint32, wrid uint64, sges []SGE) {
	s, room := q.at(i)
	s.wrid, s.sges = wrid, copy(room, sges)
}

// Cap is how many receives can be outstanding.
func (q *RecvQueue) Cap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.cap)
}

// MaxSGE is how many SGEs a receive can have.
func (q *RecvQueue) MaxSGE() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.maxSGE
}

// Shared tells whether the queue is an SRQ; PD is then the domain of its buffers.
func (q *RecvQueue) Shared() bool { return q.shared }

// PD is the protection domain of an SRQ's buffers.
func (q *RecvQueue) PD() uint32 { return q.pd }

// Lock and Unlock bracket calls of Put.
func (q *RecvQueue) Lock()   { q.mu.Lock() }
func (q *RecvQueue) Unlock() { q.mu.Unlock() }

// Post appends a receive of the given SGEs, at most MaxSGE, which are copied.
func (q *RecvQueue) Post(wrid uint64, sges []SGE) error {
	q.mu.Lock()
	err := q.Put(wrid, sges)
	q.mu.Unlock()
	return err
}

// Put is Post for a caller that holds Lock.
func (q *RecvQueue) Put(wrid uint64, sges []SGE) error {
	switch polled := q.polled.Load(); {
	case q.fill-polled >= q.cap:
		return ErrQueueFull
	case q.fill == polled:
		q.base = q.fill
	}
	q.store(q.fill, wrid, sges)
	q.fill++
	return nil
}

// Take copies the oldest posted receive into w, whose SGEs array is reused, and removes it from the queue.
func (q *RecvQueue) Take(w *RecvWQE) bool {
	ok, _ := q.takeFor(w, 0)
	return ok
}

// takeFor is Take for a message of n bytes: a receive with less room is left where it is, and small is then true.
func (q *RecvQueue) takeFor(w *RecvWQE, n uint64) (ok, small bool) {
	q.mu.Lock()
	if q.fill == q.taken {
		q.mu.Unlock()
		return false, false
	}
	s, sges := q.at(q.taken)
	sges = sges[:s.sges]
	if n > 0 && roomOf(sges) < n {
		q.mu.Unlock()
		return false, true
	}
	w.WRID = s.wrid
	w.SGEs = append(w.SGEs[:0], sges...)
	q.taken++
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

// putBack makes w, which Take gave last, the oldest posted receive again: the message it was taken for was
// lost. It is for queues of one QP.
func (q *RecvQueue) putBack(w *RecvWQE) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	q.store(q.taken, w.WRID, w.SGEs)
}

// roomOf is the number of bytes that a receive of these SGEs can hold.
func roomOf(sges []SGE) (n uint64) {
	for i := range sges {
		n += uint64(sges[i].Length)
	}
	return n
}

// Posted counts the receives that wait to be taken.
func (q *RecvQueue) Posted() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return int(q.fill - q.taken)
}

// Release gives back the place of n receives whose completions were polled.
func (q *RecvQueue) Release(n uint32) { q.polled.Add(n) }

// Clear is that of SendQueue.
func (q *RecvQueue) Clear() { q.clear() }

// clear empties the queue (RESET).
func (q *RecvQueue) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken = q.fill
	q.polled.Store(q.fill)
}

func ceilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
