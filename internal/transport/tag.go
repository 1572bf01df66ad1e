package transport

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Tag matching (V-SRQX-01, type TM). A tag-matching SRQ has, besides its receives, a list of buffers, each with a tag
// and a mask. A SEND starts with a header (wire.TMH) that contains a tag. The message goes to the first buffer whose
// tag matches, without its header. If none matches, it goes to an ordinary receive including its header. Such a
// message is unexpected: the program searches its own buffers for it.
//
// Between the arrival of an unexpected message and its processing by the program, a buffer that the program adds must
// not receive a later message with the same tag. Therefore both sides count unexpected messages, and the program
// passes its count with its operations. While the counts differ, added buffers are not matched (ibv_post_srq_ops).

// Errors of tag list operations.
var (
	ErrTagsFull = errors.New("the list of tags is full")
	ErrOpsFull  = errors.New("too many operations on the list of tags are outstanding")
)

// OpsCode is a tag list operation; values of enum ibv_ops_wr_opcode.
type OpsCode uint8

// The operations.
const (
	TagAdd  OpsCode = 0
	TagDel  OpsCode = 1
	TagSync OpsCode = 2
)

// TagOp is a tag list operation.
type TagOp struct {
	WRID       uint64
	Op         OpsCode
	Signaled   bool
	Sync       bool   // Unexpected is valid
	Unexpected uint32 // number of unexpected messages that the program has processed
	Handle     uint32 // of the buffer; set by TagAdd
	RecvWRID   uint64 // TagAdd: wr_id of the message's completion
	Tag, Mask  uint64
	SGEs       []SGE // copied
}

// tagEntry is a buffer with a tag.
type tagEntry struct {
	handle     uint32 // of its last use if it is free
	next       int32  // in the list of buffers or free entries; -1 at the end
	wrid       uint64
	tag, mask  uint64
	sges       []SGE // a slice of the list's array
	generation uint16
}

// TagList is the tag list of an SRQ. The fields after mu are guarded by mu.
type TagList struct {
	srq    *RecvQueue
	cq     CompletionQueue
	maxSGE int

	used atomic.Int32  // entries in the list and entries whose completion was not polled
	ops  atomic.Int32  // operations whose completion was not polled
	lost atomic.Uint32 // unexpected messages that the program does not learn of, and that came still counts

	mu sync.Mutex // taken before the locks of srq and cq
	// +checklocks:mu
	entries []tagEntry
	// +checklocks:mu
	sges []SGE // maxSGE for each entry
	// +checklocks:mu
	first int32 // oldest entry, -1 for none
	// +checklocks:mu
	waiting int32 // oldest entry that is not matched until the counts are equal, nor are those after it; -1 for none
	// +checklocks:mu
	last int32
	// +checklocks:mu
	free   int32
	maxOps int
	// +checklocks:mu
	came uint32 // unexpected messages received
	// +checklocks:mu
	seen uint32 // unexpected messages that the program has processed
	// +checklocks:mu
	cqe CQE // scratch
}

// MatchTags makes q a tag-matching SRQ with at most tags buffers of sges SGEs each, and at most ops operations whose
// completions were not polled. All completions go to cq.
func (q *RecvQueue) MatchTags(tags, ops, sges int, cq CompletionQueue) *TagList {
	l := &TagList{
		srq: q, cq: cq, maxSGE: sges, maxOps: ops, entries: make([]tagEntry, tags), sges: make([]SGE, tags*sges),
		first: -1, waiting: -1, last: -1,
	}
	for i := range l.entries {
		l.entries[i].next = int32(i + 1)
	}
	l.entries[tags-1].next = -1
	q.tags = l
	return l
}

// Tags returns the tag list, nil if the queue does not match tags.
func (q *RecvQueue) Tags() *TagList { return q.tags }

// Do executes an operation. If it returns an error, the operation had no effect.
func (l *TagList) Do(op *TagOp) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(l.ops.Load()) >= l.maxOps {
		return ErrOpsFull
	}
	if op.Op == TagAdd && int(l.used.Load()) >= len(l.entries) {
		return ErrTagsFull
	}
	l.settle()
	if op.Sync {
		l.seen = op.Unexpected
	}
	if l.seen == l.came {
		l.admit()
	}
	status := Success
	switch op.Op {
	case TagAdd:
		l.add(op)
	case TagDel:
		if !l.remove(op.Handle) {
			status = TMErr
		}
	case TagSync:
	}
	if op.Signaled || status != Success {
		l.complete(op, status)
	}
	return nil
}

// complete pushes the completion of an operation. l.mu is held, so the completion precedes that of a message that
// matches the added buffer.
//
// +checklocks:l.mu
func (l *TagList) complete(op *TagOp, status Status) {
	l.ops.Add(1)
	l.cqe = CQE{WRID: op.WRID, Status: status, Op: CQTMAdd + CQOp(op.Op), Flags: l.syncFlag(), RQ: l.srq, Tags: l}
	if status != Success {
		l.cqe.Cause = &Failure{Status: status, Reason: "the list has no buffer with this handle; a message may have taken it"}
	}
	l.cq.Push(&l.cqe)
}

// syncFlag returns the flag that asks the program for its count of unexpected messages.
//
// +checklocks:l.mu
func (l *TagList) syncFlag() CQFlags {
	if l.seen != l.came {
		return TMSyncReq
	}
	return 0
}

// +checklocks:l.mu
func (l *TagList) add(op *TagOp) {
	i := l.free
	e := &l.entries[i]
	l.free = e.next
	e.generation++
	if e.generation == 0 {
		e.generation = 1
	}
	at := int(i) * l.maxSGE
	*e = tagEntry{
		handle: uint32(e.generation)<<16 | uint32(i), next: -1, generation: e.generation,
		wrid: op.RecvWRID, tag: op.Tag, mask: op.Mask,
		sges: append(l.sges[at:at:at+l.maxSGE], op.SGEs...),
	}
	op.Handle = e.handle
	if l.last >= 0 {
		l.entries[l.last].next = i
	} else {
		l.first = i
	}
	l.last = i
	l.used.Add(1)
	if l.waiting < 0 && l.seen != l.came {
		l.waiting = i
	}
}

// admit makes waiting entries matchable.
//
// +checklocks:l.mu
func (l *TagList) admit() { l.waiting = -1 }

// remove removes the buffer of a handle and reports whether it existed. No completion is pushed for the buffer.
//
// +checklocks:l.mu
func (l *TagList) remove(handle uint32) bool {
	before := int32(-1)
	for i := l.first; i >= 0; before, i = i, l.entries[i].next {
		if l.entries[i].handle == handle {
			l.unlink(before, i)
			l.used.Add(-1)
			return true
		}
	}
	return false
}

// unlink removes entry i, whose predecessor is before, from the list.
//
// +checklocks:l.mu
func (l *TagList) unlink(before, i int32) {
	e := &l.entries[i]
	next := e.next
	if before >= 0 {
		l.entries[before].next = next
	} else {
		l.first = next
	}
	if l.last == i {
		l.last = before
	}
	if l.waiting == i {
		l.waiting = next
	}
	e.next, l.free = l.free, i
}

// match moves the first matching buffer to w. If room is not nil, it decides whether the size of the buffer is
// acceptable. If no buffer matches, the message is unexpected and takes an ordinary receive; ready is false if none
// is posted.
func (l *TagList) match(w *RecvWQE, tag uint64, room func(uint64) bool) (matched, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settle()
	before := int32(-1)
	for i := l.first; i >= 0 && i != l.waiting; before, i = i, l.entries[i].next {
		e := &l.entries[i]
		if tag&e.mask != e.tag {
			continue
		}
		if room != nil && !room(roomOf(e.sges)) {
			break
		}
		w.WRID, w.SGEs = e.wrid, append(w.SGEs[:0], e.sges...)
		l.unlink(before, i)
		return true, true
	}
	if ready, _ = l.srq.takeFor(w, 0); ready {
		l.came++
	}
	return false, ready
}

// forget takes an unexpected message out of the count: its QP was reset, so the program gets no completion for it.
func (l *TagList) forget() { l.lost.Add(1) }

// settle subtracts from the count what forget has noted.
//
// +checklocks:l.mu
func (l *TagList) settle() {
	if l.lost.Load() == 0 {
		return
	}
	if l.came -= l.lost.Swap(0); l.seen == l.came {
		l.admit()
	}
}

// Unexpected reports whether e is the completion of an unexpected message.
func (e *CQE) Unexpected() bool { return e.Op == CQTMRecv && e.Flags&TMSyncReq != 0 }

// Lose notes that the program does not get the completion e. It takes no lock, as Polled.
func (e *CQE) Lose() {
	if e.Unexpected() {
		e.RQ.tags.forget()
	}
}

// Polled frees the slot of an operation or buffer whose completion was polled. The completion queue calls it with its
// lock held. It takes no lock, because l.mu is taken before that of the completion queue.
func (l *TagList) Polled(e *CQE) {
	switch {
	case e.Op == CQTMAdd || e.Op == CQTMDel || e.Op == CQTMSync:
		l.ops.Add(-1)
	case e.onlyMatch():
	default:
		l.unuse()
	}
}

// unuse frees the slot of a buffer.
func (l *TagList) unuse() { l.used.Add(-1) }

// onlyMatch reports whether e is the match of a rendezvous, whose buffer stays in use until its data has completed.
func (e *CQE) onlyMatch() bool {
	return e.Status == Success && e.Flags&(TMMatch|TMDataValid) == TMMatch
}
