package transport

import (
	"github.com/verbena-rdma/verbena/internal/wire"
)

// MaxRndvHeader is the maximum length in bytes of a rendezvous request that is matched, including the program's own
// data.
const MaxRndvHeader = 256

// tagged is the tag matching state of a message received on a tag-matching SRQ.
type tagged struct {
	op       CQOp // of the completion; 0 for a message without a header
	matched  bool // the receive is a tagged buffer
	deferred bool // a rendezvous request; the completion follows when the message was read
	sw       bool // a rendezvous request that the program must handle
	tag      uint64
	appCtx   uint32
	found    bool              // match found the receive, by header
	kept     bool              // its payload was revoked: the same message must come again
	header   [wire.TMHLen]byte // of the message, if found
}

// takeTagged takes the receive of a SEND that starts with the current packet. skip is the length of the header that
// is not copied to the receive.
func (r *responder) takeTagged(info *wire.Info) (skip int, f *fault) {
	v := &r.recv
	m := tagged{}
	n := r.tagHeader(&m.header) // void if the payload was revoked
	switch {
	case !r.payloadIntact():
		return 0, revoked
	case r.waits():
		if n < wire.TMHLen || m.header != v.header {
			r.denied.err = r.disorder(info)
			return 0, faultOrder
		}
	case !r.match(&m, n, info):
		return 0, notReady
	default:
		r.begin()
		v.tagged = m
	}
	if v.matched && !v.deferred && v.eager() {
		skip = wire.TMHLen
	}
	return skip, nil
}

// tagHeader copies the first bytes of the message, and returns their number. The copy may be void; see payloadIntact.
func (r *responder) tagHeader(to *[wire.TMHLen]byte) int {
	if r.data.away == nil {
		return copy(to[:], r.data.bytes)
	}
	n := min(r.data.len(), len(r.tmh))
	r.data.copy(r.tmh[:n], 0)
	*to = r.tmh
	return n
}

// match takes the receive of a message whose first n bytes are in the header of m, and reports whether there was one.
func (r *responder) match(m *tagged, n int, info *wire.Info) (ready bool) {
	if n < wire.TMHLen {
		return r.take()
	}
	h := wire.TMH(m.header[:])
	m.tag, m.appCtx = h.Tag(), h.AppCtx()
	switch h.Op() {
	case wire.TMEager:
		m.op, m.found = CQTMRecv, true
		m.matched, ready = r.rq.tags.match(&r.recv.wqe, m.tag, nil)
	case wire.TMRndv:
		m.op, m.found = CQTMRecv, true
		m.matched, ready = r.matchRndv(r.rq.tags, m, info)
	default:
		m.op = CQTMNoTag
		ready = r.take()
	}
	return ready
}

// eager reports whether the message itself follows the header.
func (m *tagged) eager() bool { return wire.TMH(m.header[:]).Op() == wire.TMEager }

// matchRndv is match for a rendezvous request. If the QP cannot read the message itself, the request is copied to the
// buffer.
func (r *responder) matchRndv(l *TagList, m *tagged, info *wire.Info) (matched, ready bool) {
	w := &r.recv.wqe
	const whole = wire.Start | wire.End
	if info.Flags&whole != whole || r.data.len() < wire.TMHLen+wire.RVHLen || r.data.len() > MaxRndvHeader {
		return l.match(w, m.tag, func(uint64) bool { return false })
	}
	able := r.qp.req.canRead()
	matched, ready = l.match(w, m.tag, func(room uint64) bool { return able || room >= uint64(r.data.len()) })
	m.sw, m.deferred = matched && !able, matched && able
	return matched, ready
}

// rendezvous starts the READ of the message that the current request describes. The match completes at once, the
// buffer when the READ is done.
func (r *responder) rendezvous() *fault {
	v := &r.recv
	h := wire.RVH(r.data.bytes[wire.TMHLen:])
	if uint64(h.Length()) > min(v.room, maxMessage) {
		return faultSendTooLong
	}
	r.qp.req.read(&v.wqe, &v.tagged, h)
	e := &r.qp.Scratch.sent
	*e = CQE{
		WRID: v.wqe.WRID, Op: v.op, Flags: TMMatch, QPN: r.qp.Num, QP: r.qp, RQ: r.qp.RQ,
		Tags:      r.qp.RQ.tags,
		PKeyIndex: r.qp.attr.PKeyIndex, Tag: v.tag, AppCtx: v.appCtx,
	}
	r.qp.RecvCQ.Push(e)
	*e = CQE{}
	r.held = false
	r.phase = between
	r.step(1, true)
	return nil
}

// tell sets the tag matching fields of a completion.
func (m *tagged) tell(e *CQE, l *TagList) {
	if m.op == 0 {
		return
	}
	e.Op, e.Tag, e.AppCtx = m.op, m.tag, m.appCtx
	switch {
	case m.matched:
		e.Tags = l
		if !m.deferred { // otherwise rendezvous has reported the match
			e.Flags |= TMMatch
		}
		if m.sw {
			e.Status = TMRndvIncomplete
		} else {
			e.Flags |= TMDataValid
		}
	case m.op == CQTMRecv:
		e.Flags |= TMSyncReq
	}
}

// OwnRequests is the number of extra send queue slots of a QP with a tag-matching SRQ. The responder posts there the
// READs of rendezvous messages and the responses after them, so they take no slot of the program's.
const OwnRequests = 64

// rndv is a message that is being read.
type rndv struct {
	wrid uint64
	tagged
	sges []SGE
	fin  [wire.TMHLen]byte
}

// canRead reports whether the QP can read a rendezvous message now.
func (r *requester) canRead() bool {
	return r.phase == running && r.bad == nil && r.qp.attr.MaxRdAtomic > 0 && r.sq.room(2)
}

// read posts the READ of a rendezvous message into buffer w and the response that follows it. canRead has returned
// true.
func (r *requester) read(w *RecvWQE, m *tagged, h wire.RVH) {
	q := r.sq
	q.Lock()
	defer q.Unlock()
	if r.rndvs == nil {
		r.rndvs = make([]rndv, q.Cap())
	}
	slot := q.nextOwn()
	d := &r.rndvs[q.fill&q.mask]
	d.wrid, d.tagged, d.sges = w.WRID, *m, append(d.sges[:0], w.SGEs...)
	wire.TMH(d.fin[:]).Put(wire.TMFin, m.appCtx, m.tag)
	*slot = SendWQE{
		Op:           OpRead,
		SGEs:         d.sges,
		Length:       h.Length(),
		RemoteAddr:   h.Addr(),
		RKey:         h.RKey(),
		requesterWQE: requesterWQE{own: true},
	}
	q.Commit()
	slot = q.nextOwn()
	*slot = SendWQE{
		Op:           OpSend,
		Flags:        Fence | Inline,
		Inline:       d.fin[:],
		Length:       wire.TMHLen,
		requesterWQE: requesterWQE{own: true},
	}
	q.Commit()
	q.Publish()
}

// finishOwn finishes a request posted by the responder, the one at head.
func (r *requester) finishOwn(w *SendWQE, st Status, f *Failure) {
	q := r.sq
	w.own = false
	if w.Op == OpRead {
		d := &r.rndvs[r.head&q.mask]
		e := &r.qp.Scratch.sent
		*e = CQE{WRID: d.wrid, QPN: r.qp.Num, QP: r.qp, RQ: r.qp.RQ, PKeyIndex: r.qp.attr.PKeyIndex, ByteLen: w.Length}
		d.tell(e, r.qp.RQ.tags)
		if e.Status = st; st != Success {
			e.ByteLen, e.Cause = 0, f
		}
		r.qp.RecvCQ.Push(e)
		*e = CQE{}
	}
	q.releaseOwn(r.head)
}

// dropOwn discards such a request without a completion (RESET).
func (r *requester) dropOwn(w *SendWQE) {
	if w.own && w.Op == OpRead {
		r.qp.RQ.tags.unuse()
	}
}
