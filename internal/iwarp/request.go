package iwarp

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// answer is a response to the peer, to a READ or an atomic.
type answer struct {
	atomic bool
	read   iwarp.Read
	msn    uint32 // of the Read Request
	id     uint32
	was    uint64
}

// admit reports whether the peer may have another request outstanding.
func (q *QP) admit() *refusal {
	if q.asked >= q.par.IRD {
		return refuse(iwarp.NoBuffer)
	}
	q.asked++
	return nil
}

// onRead checks a READ of the peer and queues its response. READs of no bytes need no STag.
func (q *QP) onRead() *refusal {
	d := iwarp.ParseRead(q.small[:])
	if r := q.admit(); r != nil {
		return r
	}
	if d.Size > 0 {
		_, w, r := q.region(d.SrcSTag, d.SrcTO, uint64(d.Size), mr.RemoteRead, readCodes)
		w.Release()
		if r != nil {
			return r
		}
	}
	q.answers = append(q.answers, answer{read: d, msn: q.seg.MSN()})
	if d.Size > 0 || d.SrcSTag != ownSTag {
		q.Counters.RxReadRequests++
	}
	return nil
}

// onAtomic executes an atomic of the peer and queues its response. Masks are supported in the two forms that verbs
// have.
func (q *QP) onAtomic() *refusal {
	a := iwarp.ParseAtomic(q.small[:])
	if r := q.admit(); r != nil {
		return r
	}
	whole := a.Mask == 0
	if a.Op == iwarp.CmpSwap {
		whole = a.Mask == ^uint64(0) && a.CompareMask == ^uint64(0)
	}
	if !whole || a.TO%8 != 0 || a.Op != iwarp.CmpSwap && a.Op != iwarp.FetchAdd {
		return refuse(iwarp.OperationOther)
	}
	word, w, r := q.region(a.STag, a.TO, 8, mr.RemoteAtomic, readCodes)
	if r != nil {
		return r
	}
	var was uint64
	ok := false
	if a.Op == iwarp.CmpSwap {
		was, ok = mr.CompareSwap(word, a.Compare, a.Data)
	} else {
		was, ok = mr.FetchAdd(word, a.Data)
	}
	w.Release()
	if !ok {
		return &refusal{code: iwarp.ReadSTag, why: mr.ErrUnmapped.Error()}
	}
	q.Counters.RxAtomicRequests++
	q.answers = append(q.answers, answer{atomic: true, id: a.ID, was: was})
	return nil
}

// outstanding is a READ or an atomic that waits for its response.
type outstanding struct {
	slot   uint32
	own    bool // the first message of a peer-to-peer connection: no work request belongs to it
	atomic bool
	msn    uint32
	stag   uint32
	to     uint64
	size   uint32
	got    uint32
}

// onResponse checks a segment of a Read Response against the oldest READ.
func (q *QP) onResponse(s iwarp.Segment, n int) *refusal {
	if len(q.waiting) == 0 || q.waiting[0].atomic {
		return refuse(iwarp.UnexpectedOpcode)
	}
	o := &q.waiting[0]
	switch {
	case s.STag() != o.stag:
		return refuse(iwarp.TaggedSTag)
	case s.TO() != o.to+uint64(o.got), uint64(n) > uint64(o.size-o.got):
		return refuse(iwarp.TaggedBounds)
	case s.Last() && uint32(n) != o.size-o.got:
		return refuse(iwarp.OperationOther)
	}
	if n > 0 {
		q.place = placement{sink: toRead, stag: o.stag, to: s.TO()}
	}
	return nil
}

// endResponse ends a segment of a Read Response.
func (q *QP) endResponse() *refusal {
	o := &q.waiting[0]
	o.got += uint32(q.size - len(q.seg))
	if q.seg.Last() {
		q.answered()
	}
	return nil
}

// onAtomicResponse stores what an atomic has found, in host byte order.
func (q *QP) onAtomicResponse() *refusal {
	id, was := iwarp.ParseAtomicResponse(q.small[:])
	if len(q.waiting) == 0 || !q.waiting[0].atomic || q.waiting[0].msn != id {
		return refuse(iwarp.UnexpectedOpcode)
	}
	o := &q.waiting[0]
	b, err := q.Regions.Check(o.stag, o.to, 8, q.PD, mr.LocalWrite)
	if err == nil && !mr.Set(b, was) {
		err = mr.ErrUnmapped
	}
	if err != nil {
		return q.failRead(err)
	}
	q.answered()
	return nil
}

// answered completes the oldest READ or atomic.
func (q *QP) answered() {
	o := q.waiting[0]
	q.waiting = q.waiting[:copy(q.waiting, q.waiting[1:])]
	if o.own {
		return
	}
	q.entry(o.slot).done = true
	q.complete()
}

// failRead is the refusal of a response whose local buffer is not accessible. The READ fails with it.
func (q *QP) failRead(err error) *refusal {
	why := fmt.Sprintf("the buffer of the response: %v", err)
	q.fails(q.waiting[0].slot, transport.LocProtErr, why)
	return &refusal{code: iwarp.LocalCatastrophic, why: why}
}

// blame finds the READ or atomic that the peer's Terminate is about.
func (q *QP) blame(t iwarp.Terminate, why string) {
	if t.DDP == nil && t.Code == iwarp.UnexpectedOpcode { // so siw answers an atomic
		for i := range q.waiting {
			if o := &q.waiting[i]; o.atomic {
				q.fails(o.slot, transport.RemInvReqErr, why)
			}
		}
		return
	}
	s := iwarp.Segment(t.DDP)
	if t.DDP == nil || s.Tagged() || s.QN() != iwarp.QueueRequest {
		return
	}
	st := transport.RemOpErr
	switch t.Code.Layer()<<4 | t.Code.Type() {
	case 1:
		st = transport.RemAccessErr
	case 2, 0x12:
		st = transport.RemInvReqErr
	}
	for i := range q.waiting {
		if o := &q.waiting[i]; !o.own && o.msn == s.MSN() {
			q.fails(o.slot, st, why)
		}
	}
}
