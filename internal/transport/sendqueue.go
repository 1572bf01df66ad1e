package transport

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/prefetch"
)

// SendWQE is one slot of a send queue. The posting goroutine sets the first part; the requester owns requesterWQE
// once the slot is posted. A slot is 128 bytes: a device with many QPs has very many slots.
type SendWQE struct {
	WRID       uint64
	Op         Op
	Flags      SendFlags
	Imm        uint32 // immediate data, or the R_Key to invalidate; host order
	RemoteAddr uint64
	RKey       uint32
	Length     uint32   // of the whole message, bytes
	SGEs       []SGE    // a slice of the queue's array; empty for inline
	Inline     []byte   // Brief, or a slice of the queue's array; nil unless Flags has Inline
	*SendMore           // nil until SendQueue.More is called
	Brief      [16]byte // memory for few bytes of inline data, so that they are where the rest is

	requesterWQE
}

// SendMore holds the fields that few work requests use.
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
	// Atomic operations.
	CompareAdd, Swap uint64
	// QP 1: the P_Key of the datagram; 0: that of the QP.
	PKey uint16
}

// SendQueue is a QP's send queue: a ring between the posting goroutines, which hold Lock, and the requester. Indices
// are not wrapped; they are masked on use. Posters of a QP that a shard runs hold the shard instead, or LockShared; the
// caller makes the two exclude each other.
//
// An empty queue restarts at its first slot, so a queue that is never full uses only a few slots, which stay in the
// processor's caches. This is safe: slots are accessed only for indices below posted, and posted is stored after
// base.
type SendQueue struct {
	mu    sync.Mutex
	first atomic.Pointer[sendChunk] // the first slots; nil until they are used
	rest  *[]*sendChunk             // the other slots
	own   *ownSlots                 // nil until OwnSlots
	mask  uint32
	base  uint32 // index of the first slot; guarded by mu
	// +checklocks:mu
	fill      uint32        // index of the next slot to post; guarded by mu
	posted    atomic.Uint32 // slots before it belong to the requester
	polled    atomic.Uint32 // slots before it are free; with own slots it is written with mu held
	locked    atomic.Bool   // LockShared was called, and UnlockShared was not
	long      atomic.Bool   // the last inline data were not in Brief
	maxInline uint16
	maxSGE    uint8
	held      bool // the poster holds the QP's shard
}

// ownSlots are the requests that the responder posts. They take OwnRequests slots at most, and those of the program the
// others. The fields are guarded by the queue's mu.
type ownSlots struct {
	done []bool // by slot: such a request is done
	used int    // slots of such requests that are not free
}

// A sendChunk is some slots of a send queue. Chunks are allocated when they are first used: most queues of a device
// with many QPs never hold many requests. A small chunk also does not begin at a page, so that the first slots of many
// queues do not compete for the same lines of the processor's caches.
type sendChunk struct {
	// The memory for SGEs and inline data of queues with many of them.
	sges   []SGE  // maxSGE for each slot
	inline []byte // maxInline for each slot
	more   *[chunkSlots]SendMore

	slots [chunkSlots]SendWQE
	// The memory of other queues is here, so that its place is known without reading the chunk. A queue may have the one
	// here and the other there.
	few   [chunkSlots][fewSGEs]SGE
	short [chunkSlots][shortInline]byte
}

const (
	chunkShift  = 3
	chunkSlots  = 1 << chunkShift
	fewSGEs     = 2
	shortInline = 64
)

// element returns element i of the array at an offset of c, as &c.slots[i] does for that of the slots. That expression
// would read the chunk, since the compiler checks for nil in this way, and the line of its first byte is not in the
// caches.
func element[T any](c *sendChunk, array uintptr, i int) *T {
	var t T
	return (*T)(unsafe.Add(unsafe.Pointer(c), array+uintptr(i)*unsafe.Sizeof(t)))
}

// slot returns slot i.
func (c *sendChunk) slot(i int) *SendWQE { return element[SendWQE](c, unsafe.Offsetof(c.slots), i) }

// sgesOf returns the memory for the SGEs of slot i.
func (c *sendChunk) sgesOf(i, most int) []SGE {
	if most <= fewSGEs {
		return element[[fewSGEs]SGE](c, unsafe.Offsetof(c.few), i)[:0:most]
	}
	return c.sges[i*most : i*most : i*most+most]
}

// inlineOf returns the memory for the inline data of slot i.
func (c *sendChunk) inlineOf(i, most int) []byte {
	if most <= shortInline {
		return element[[shortInline]byte](c, unsafe.Offsetof(c.short), i)[:0:most]
	}
	return c.inline[i*most : i*most : i*most+most]
}

// newChunk returns a chunk for a queue.
func (q *SendQueue) newChunk() *sendChunk {
	c, n := new(sendChunk), min(chunkSlots, q.Cap())
	if q.maxSGE > fewSGEs {
		c.sges = make([]SGE, n*q.MaxSGE())
	}
	if q.maxInline > shortInline {
		c.inline = make([]byte, n*q.MaxInline())
	}
	return c
}

// NewSendQueue returns a queue of at least wrs slots, rounded up to a power of two, each with sges SGEs and inline
// bytes. These are at most 255 and 65,535.
func NewSendQueue(wrs, sges, inline int) *SendQueue {
	q := new(SendQueue)
	q.Init(wrs, sges, inline)
	return q
}

// Init makes a zero queue one of NewSendQueue.
func (q *SendQueue) Init(wrs, sges, inline int) {
	n := CeilPow2(wrs)
	if rest := n>>chunkShift - 1; rest > 0 {
		chunks := make([]*sendChunk, rest)
		q.rest = &chunks
	}
	q.mask, q.maxSGE, q.maxInline = uint32(n-1), uint8(sges), uint16(inline)
}

// Resize changes the room to at least wrs requests and keeps the posted ones. If more are outstanding it returns
// ErrQueueFull, and for a queue with slots of the QP's own (OwnSlots) ErrFixedSize; it changes nothing then. The caller
// keeps the requester from using the queue.
func (q *SendQueue) Resize(wrs int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := uint32(CeilPow2(wrs))
	from := q.polled.Load() // it may grow meanwhile, so that some slots are kept that are free
	switch {
	case q.own != nil:
		return ErrFixedSize
	case q.fill-from > n:
		return ErrQueueFull
	case n == q.mask+1:
		return nil
	}
	next := NewSendQueue(int(n), q.MaxSGE(), q.MaxInline())
	for i := from; i != q.fill; i++ {
		next.base, next.fill = from, i // +checklocksforce: next is local
		c, at := next.next()           // +checklocksforce: next is local
		c.slots[at] = *q.At(i)         // its SGEs, inline data and SendMore stay in the old chunk
	}
	q.first.Store(next.first.Load())
	q.rest, q.mask, q.base = next.rest, next.mask, from
	return nil
}

// Cap, MaxSGE and MaxInline return the actual sizes. Free returns the number of slots available to the program.
func (q *SendQueue) Cap() int       { return int(q.mask) + 1 }
func (q *SendQueue) Free() int      { return q.Cap() - ownOf(q) }
func (q *SendQueue) MaxSGE() int    { return int(q.maxSGE) }
func (q *SendQueue) MaxInline() int { return int(q.maxInline) }

// Lock and Unlock bracket the posting of work requests.
//
// +checklocksacquire:q.mu
func (q *SendQueue) Lock() { q.mu.Lock() }

// +checklocksrelease:q.mu
func (q *SendQueue) Unlock() { q.mu.Unlock() }

// LockShared and UnlockShared are Lock and Unlock for a queue for which posters use Hold too.
//
// +checklocksacquire:q.mu
func (q *SendQueue) LockShared() {
	q.mu.Lock()
	q.locked.Store(true)
}

// +checklocksrelease:q.mu
func (q *SendQueue) UnlockShared() {
	q.locked.Store(false)
	q.mu.Unlock()
}

// HasOwn reports whether OwnSlots was called. Posters of such a queue must call LockShared, as pollers lock it too.
func (q *SendQueue) HasOwn() bool { return q.own != nil }

// Hold makes the caller, which holds the QP's shard, the poster, until PublishHeld. It returns false if the queue is
// locked: the caller must call LockShared instead.
func (q *SendQueue) Hold() bool {
	if q.locked.Load() {
		return false
	}
	q.held = true
	return true
}

// Held reports whether the poster holds the QP's shard. Only the poster calls it.
func (q *SendQueue) Held() bool { return q.held }

// Next returns the next slot to set, or nil if the queue is full. The slot's SGEs and Inline are empty but have their
// capacity. The caller holds Lock, sets the slot and calls Commit.
//
// +checklocks:q.mu
func (q *SendQueue) Next() *SendWQE {
	switch polled := q.polled.Load(); {
	case q.fill-polled > q.mask, q.own != nil && int(q.fill-polled)-q.own.used >= q.Free():
		return nil
	case q.fill == polled:
		q.base = q.fill
	}
	c, i := q.next()
	w := c.slot(i)
	w.SGEs, w.Inline = c.sgesOf(i, q.MaxSGE()), c.inlineOf(i, q.MaxInline())
	return w
}

// next returns the chunk of the next slot to set, and the slot's index in it.
//
// +checklocks:q.mu
func (q *SendQueue) next() (c *sendChunk, i int) {
	n := (q.fill - q.base) & q.mask
	if n < chunkSlots {
		if c = q.first.Load(); c == nil {
			c = q.newChunk()
			q.first.Store(c)
		}
		return c, int(n)
	}
	to := &(*q.rest)[n>>chunkShift-1]
	if *to == nil {
		*to = q.newChunk()
	}
	return *to, int(n & (chunkSlots - 1))
}

// More attaches a SendMore to w, the slot of Next. The caller holds Lock.
//
// +checklocks:q.mu
func (q *SendQueue) More(w *SendWQE) *SendMore {
	c, i := q.next()
	if c.more == nil {
		c.more = new([chunkSlots]SendMore)
	}
	w.SendMore = &c.more[i]
	return w.SendMore
}

// InlineRoom returns the memory for n bytes of inline data of w, the slot of Next, behind those that it has.
//
// +checklocks:q.mu
func (q *SendQueue) InlineRoom(w *SendWQE, n int) []byte {
	long := n > len(w.Brief) || len(w.Inline) > 0
	if long != q.long.Load() { // a store takes longer
		q.long.Store(long)
	}
	if long {
		return w.Inline
	}
	return w.Brief[:0]
}

// PrefetchNext asks for the first slot, which is the next one to set if the queue is empty.
func (q *SendQueue) PrefetchNext() {
	if c := q.first.Load(); c != nil {
		from := unsafe.Offsetof(c.slots)
		if q.maxSGE > fewSGEs || q.maxInline > shortInline {
			from = 0
		}
		prefetch.Part(c, from, unsafe.Offsetof(c.slots)+unsafe.Sizeof(c.slots[0]))
		if q.long.Load() {
			prefetch.Part(c, unsafe.Offsetof(c.short), unsafe.Offsetof(c.short)+1)
		}
	}
}

// Commit posts the slot that Next returned. The requester sees it after Publish.
//
// +checklocks:q.mu
func (q *SendQueue) Commit() { q.fill++ }

// Publish makes every committed slot visible to the requester.
//
// +checklocks:q.mu
func (q *SendQueue) Publish() { q.posted.Store(q.fill) }

// PublishHeld is Publish and UnlockShared of a poster that holds the shard. All who read posted hold it too, so an
// ordinary store does, which costs no barrier.
//
// +checklocksignore: the shard is held.
func (q *SendQueue) PublishHeld() {
	*(*uint32)(unsafe.Pointer(&q.posted)) = q.fill
	q.held = false
}

// Abort discards the slots committed since the last Publish.
//
// +checklocks:q.mu
func (q *SendQueue) Abort() { q.fill = q.posted.Load() }

// Posted returns the index after the last slot that the requester may process.
func (q *SendQueue) Posted() uint32 { return q.posted.Load() }

// At returns the slot of index i.
func (q *SendQueue) At(i uint32) *SendWQE {
	n := (i - q.base) & q.mask
	if n < chunkSlots {
		return q.first.Load().slot(int(n))
	}
	return (*q.rest)[n>>chunkShift-1].slot(int(n & (chunkSlots - 1)))
}

// Release frees the slots up to and including slot, whose completion has been polled.
func (q *SendQueue) Release(slot uint32) {
	if q.own != nil {
		q.releaseBefore(slot + 1)
		return
	}
	for {
		old := q.polled.Load()
		if int32(slot+1-old) <= 0 || q.polled.CompareAndSwap(old, slot+1) {
			break
		}
	}
}

// releaseBefore is Release of a queue with own slots.
func (q *SendQueue) releaseBefore(to uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.freeTo(to)
}

func ownOf(q *SendQueue) int {
	if q.own == nil {
		return 0
	}
	return OwnRequests
}

// OwnSlots prepares the queue, which has more than OwnRequests slots, for requests posted by the QP itself, whose
// completions nobody polls. It is called before the queue is used.
func (q *SendQueue) OwnSlots() { q.own = &ownSlots{done: make([]bool, q.Cap())} }

// nextOwn is Next for such a request. room has returned true, so there is a slot.
//
// +checklocks:q.mu
func (q *SendQueue) nextOwn() *SendWQE {
	q.own.used++
	return q.Next()
}

// releaseOwn frees the slot of such a request as soon as all slots before it are free.
func (q *SendQueue) releaseOwn(slot uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.own.done[slot&q.mask] = true
	q.freeTo(q.polled.Load())
}

// freeTo frees the slots before to, and those of such requests that follow.
//
// +checklocks:q.mu
func (q *SendQueue) freeTo(to uint32) {
	at := q.polled.Load()
	for ; at != q.posted.Load(); at++ {
		done := &q.own.done[at&q.mask]
		if int32(to-at) <= 0 && !*done {
			break
		}
		if *done {
			*done = false
			q.own.used--
		}
	}
	q.polled.Store(at)
}

// room reports whether n more of such requests fit.
func (q *SendQueue) room(n int) bool {
	if q.own == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.own.used+n <= OwnRequests
}

// Clear empties the queue (RESET) and returns the index of the next request.
func (q *SendQueue) Clear() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.posted.Store(q.fill)
	q.polled.Store(q.fill)
	if q.own != nil {
		q.OwnSlots()
	}
	return q.fill
}
