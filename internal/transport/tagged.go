package transport

import (
	"github.com/verbena-rdma/verbena/internal/wire"
)

// MaxRndvHeader is the longest rendezvous request that is matched, bytes: headers and the program's own data.
const MaxRndvHeader = 256

// tagged is what the responder keeps of a message that came to an SRQ which matches tags.
type tagged struct {
	op       CQOp // of the completion; 0 for a message without a header
	matched  bool // the receive is a buffer with a tag
	deferred bool // a rendezvous request, whose completion comes when the message was read
	sw       bool // one that the program has to answer
	tag      uint64
	appCtx   uint32
}

// takeTagged gets the buffer for a SEND that begins with the packet at hand, and says how much of that packet is header which the
// buffer does not get.
func (r *responder) takeTagged(info *wire.Info) (skip int, f *fault) {
	v := &r.recv
	l := r.rq.tags
	m := tagged{}
	ready := false
	if len(r.data) < wire.TMHLen {
		ready = r.take()
	} else {
		h := wire.TMH(r.data)
		m.tag, m.appCtx = h.Tag(), h.AppCtx()
		switch h.Op() {
		case wire.TMEager:
			m.op = CQTMRecv
			if m.matched, ready = l.match(&v.wqe, m.tag, nil); m.matched {
				skip = wire.TMHLen
			}
		case wire.TMRndv:
			m.op = CQTMRecv
			m.matched, ready = r.matchRndv(l, &m, info)
		default:
			m.op = CQTMNoTag
			ready = r.take()
		}
	}
	if !ready {
		return 0, notReady
	}
	v.begin()
	v.tagged = m
	return skip, nil
}

// matchRndv is match for a rendezvous request. If the QP cannot read the message itself, the request goes to the buffer.
func (r *responder) matchRndv(l *TagList, m *tagged, info *wire.Info) (matched, ready bool) {
	w := &r.recv.wqe
	const whole = wire.Start | wire.End
	if info.Flags&whole != whole || len(r.data) < wire.TMHLen+wire.RVHLen || len(r.data) > MaxRndvHeader {
		return l.match(w, m.tag, func(uint64) bool { return false })
	}
	able := r.qp.req.canRead()
	matched, ready = l.match(w, m.tag, func(room uint64) bool { return able || room >= uint64(len(r.data)) })
	m.sw, m.deferred = matched && !able, matched && able
	return matched, ready
}

// rendezvous has the message read that the request at hand is about. The buffer completes when it is there.
func (r *responder) rendezvous() *fault {
	v := &r.recv
	h := wire.RVH(r.data[wire.TMHLen:])
	if uint64(h.Length()) > min(v.room, maxMessage) {
		return faultSendTooLong
	}
	r.qp.req.read(&v.wqe, &v.tagged, h)
	v.held = false
	r.phase = between
	r.step(1, true)
	return nil
}

// tell puts in a completion what is known of the tag.
func (m *tagged) tell(e *CQE, l *TagList) {
	if m.op == 0 {
		return
	}
	e.Op, e.Tag, e.AppCtx = m.op, m.tag, m.appCtx
	switch {
	case m.matched:
		e.Tags = l
		e.Flags |= TMMatch
		if m.sw {
			e.Status = TMRndvIncomplete
		} else {
			e.Flags |= TMDataValid
		}
	case m.op == CQTMRecv:
		e.Flags |= TMSyncReq
	}
}

// OwnRequests is how much longer the send queue of a QP should be whose SRQ matches tags, so that what the responder puts there takes
// no place of the program's: READs of rendezvous messages, and the responses behind them.
const OwnRequests = 64

// rndv is a message that is being read.
type rndv struct {
	wrid uint64
	tagged
	sges []SGE
	fin  [wire.TMHLen]byte
}

// canRead tells whether the QP can read a message by itself now.
func (r *requester) canRead() bool {
	return r.phase == running && r.bad == nil && r.qp.attr.MaxRdAtomic > 0 && r.sq.room(2)
}

// read posts the READ of a rendezvous message into buffer w, and the response that follows it. canRead has said yes.
func (r *requester) read(w *RecvWQE, m *tagged, h wire.RVH) {
	q := r.sq
	q.Lock()
	defer q.Unlock()
	if r.rndvs == nil {
		r.rndvs = make([]rndv, q.cap)
	}
	slot := q.Next()
	d := &r.rndvs[q.fill&q.mask]
	d.wrid, d.tagged, d.sges = w.WRID, *m, append(d.sges[:0], w.SGEs...)
	wire.TMH(d.fin[:]).Put(wire.TMFin, m.appCtx, m.tag)
	*slot = SendWQE{Op: OpRead, SGEs: d.sges, Length: h.Length(), RemoteAddr: h.Addr(), RKey: h.RKey(), requesterWQE: requesterWQE{own: true}}
	q.Commit()
	slot = q.Next()
	*slot = SendWQE{Op: OpSend, Flags: Fence | Inline, Inline: d.fin[:], Length: wire.TMHLen, requesterWQE: requesterWQE{own: true}}
	q.Commit()
	q.Publish()
}

// finishOwn ends a request of the responder's, the one at head.
func (r *requester) finishOwn(w *SendWQE, st Status, f *Failure) {
	q := r.sq
	w.own = false
	if w.Op == OpRead {
		d := &r.rndvs[r.head&q.mask]
		e := &r.cqe
		*e = CQE{WRID: d.wrid, QPN: r.qp.Num, QP: r.qp, SRQ: r.qp.RQ, PKeyIndex: r.qp.attr.PKeyIndex, ByteLen: w.Length}
		d.tell(e, r.qp.RQ.tags)
		if e.Status = st; st != Success {
			e.ByteLen, e.Cause = 0, f
		}
		r.qp.RecvCQ.Push(e)
		*e = CQE{}
	}
	q.releaseOwn(r.head)
}

// dropOwn forgets a request of the responder's without a completion (RESET).
func (r *requester) dropOwn(w *SendWQE) {
	if w.own && w.Op == OpRead {
		r.qp.RQ.tags.Polled(CQTMRecv)
	}
}
