package transport

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Tag matching (V-SRQX-01, type TM). An SRQ that matches tags has, beside its receives, a list of buffers with a tag
// and a mask each. A SEND begins with a header (wire.TMH) that has the sender's tag: the message goes to the first buffer whose tag
// fits, without its header, and if there is none to an ordinary receive, header and all. Such a message is unexpected: the program
// looks among its own buffers for it.
//
// Between an unexpected message and the moment at which the program has seen it, a buffer that the program adds must
// not get a later message with the same tag. So both count unexpected messages, the program tells its count with its operations,
// and as long as the counts differ buffers that are added only wait (ibv_post_srq_ops).

// Errors of operations on a list of tags.
var (
	ErrTagsFull = errors.New("the list of tags is full")
	ErrOpsFull  = errors.New("too many operations on the list of tags are outstanding")
)

// OpsCode is an operation on a list of tags; values of enum ibv_ops_wr_opcode.
type OpsCode uint8

// The operations.
const (
	TagAdd  OpsCode = 0
	TagDel  OpsCode = 1
	TagSync OpsCode = 2
)

// TagOp is an operation on a list of tags.
type TagOp struct {
	WRID       uint64
	Op         OpsCode
	Signaled   bool
	Sync       bool   // Unexpected counts
	Unexpected uint32 // unexpected messages that the program has seen
	Handle     uint32 // of the buffer: TagAdd sets it
	RecvWRID   uint64 // TagAdd: of the completion of the message
	Tag, Mask  uint64
	SGEs       []SGE // copied
}

// tagEntry is a buffer with a tag.
type tagEntry struct {
	handle     uint32 // 0 of one that is free
	next       int32  // in the list, or in that of free ones; -1 ends it
	wrid       uint64
	tag, mask  uint64
	sges       []SGE // of the list's array, cut to length
	generation uint16
}

// TagList is the list of an SRQ that matches tags.
type TagList struct {
	srq    *RecvQueue
	cq     CompletionQueue
	maxSGE int

	used atomic.Int32 // entries of the list, and those whose completion was not polled
	ops  atomic.Int32 // whose completion was not polled

	mu      sync.Mutex // before those of srq and of cq
	entries []tagEntry
	sges    []SGE // maxSGE for each entry
	first   int32 // the oldest that may be matched, -1 for none
	waiting int32 // the oldest that waits for the counts to be equal; it and all behind it are last in the list
	last    int32
	free    int32
	maxOps  int
	came    uint32 // unexpected messages
	seen    uint32 // those that the program has seen
	cqe     CQE    // scratch
}

// MatchTags makes q an SRQ that matches tags: at most tags of them with sges SGEs each, and ops operations whose completions
// were not polled. All completions go to cq.
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

// Tags is the list of an SRQ that matches tags, nil for another queue.
func (q *RecvQueue) Tags() *TagList { return q.tags }

// Do executes an operation. Its error says that it was not begun.
func (l *TagList) Do(op *TagOp) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if int(l.ops.Load()) >= l.maxOps {
		return ErrOpsFull
	}
	if op.Op == TagAdd && int(l.used.Load()) >= len(l.entries) {
		return ErrTagsFull
	}
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

// complete leaves a completion of an operation. l is locked, so that it comes before that of a message which the operation
// is for.
func (l *TagList) complete(op *TagOp, status Status) {
	l.ops.Add(1)
	l.cqe = CQE{WRID: op.WRID, Status: status, Op: CQTMAdd + CQOp(op.Op), Flags: l.syncFlag(), SRQ: l.srq, Tags: l}
	if status != Success {
		l.cqe.Cause = &Failure{Status: status, Reason: "the list has no buffer of that handle; a message may have taken it"}
	}
	l.cq.Push(&l.cqe)
}

// syncFlag asks the program for its count of unexpected messages.
func (l *TagList) syncFlag() CQFlags {
	if l.seen != l.came {
		return TMSyncReq
	}
	return 0
}

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
		handle: uint32(e.generation)<<16 | uint32(i), next: -1, generation: e.generation, wrid: op.RecvWRID, tag: op.Tag, mask: op.Mask,
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

// admit lets those that wait be matched.
func (l *TagList) admit() { l.waiting = -1 }

// remove takes the buffer of a handle out and tells whether there was one. It has no completion.
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

// unlink takes entry i, which comes behind before, out of the list.
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
	e.handle, e.next = 0, l.free
	l.free = i
}

// match finds the first buffer for a message, takes it out of the list and puts it in w. room is called to say whether a buffer with so
// much room will do. If there is none the message is unexpected and gets an ordinary receive; ready is false if there is none either.
func (l *TagList) match(w *RecvWQE, tag uint64, room func(uint64) bool) (matched, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
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

// Polled gives back the place of something whose completion was polled: an operation, or a buffer. The completion queue calls it with its lock
// held, which others take while they hold that of the list: so it takes none.
func (l *TagList) Polled(op CQOp) {
	if op == CQTMAdd || op == CQTMDel || op == CQTMSync {
		l.ops.Add(-1)
	} else {
		l.used.Add(-1)
	}
}
