package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// The next SEND of one packet to a receive with one SGE, and an acknowledgement, need little of what onPacket does for
// any packet. onShort does only that. The result is the same: the same completions, replies and state (decision 49).

// onShort handles p if it is such a packet of an RC QP and nothing about it is unusual. Otherwise it returns false, and
// onPacket has all to do.
func (qp *QP) onShort(now int64, p *link.RxPacket) bool {
	h := wire.BTH(p.Data)
	switch h.Opcode() {
	case wire.RC | wire.SendOnly:
		return qp.usual(p, h) && !qp.resp.keeps && qp.resp.onShortSend(p, h)
	case wire.RC | wire.Ack:
		if qp.usual(p, h) && qp.req.keep == nil {
			if !wire.AETH(p.Data[wire.BTHLen:]).IsAck() || !qp.req.onShortAck(now, h.PSN()) {
				qp.req.onResponse(now, p, h.Opcode().Info())
			}
			return true
		}
	}
	return false
}

// usual reports whether an RC packet has come over the primary path, with a P_Key that permits it, to a QP in RTS.
func (qp *QP) usual(p *link.RxPacket, h wire.BTH) bool {
	a := &qp.attr
	return qp.Type == RC && qp.State() == RTS && a.Mig == Migrated && reaches(qp.path, p) &&
		PKeyMatch(h.PKey(), a.PKey) && !p.Train && p.TClass&wire.ECNMask != wire.ECNMarked
}

// OnCounted handles an acknowledgement of a request that the peer has counted, and of all before it. One of an earlier
// connection is ignored; the QP may be destroyed then.
func (qp *QP) OnCounted(now int64, a *link.Ack) {
	r := &qp.req
	if a.Life != r.life || !qp.State().Receives() {
		return
	}
	r.heardFrom(now)
	if r.phase == running && r.onShortAck(now, a.PSN) { // in SQD it may end the draining
		return
	}
	r.heard = true
	if (a.PSN-r.una)&psn.Mask >= (r.max-r.una)&psn.Mask {
		return
	}
	r.advance(now, psn.Next(a.PSN))
	r.runDeferred()
}

// Count acknowledges a counted request by its Counter, if that is all that the QP has to answer. It reports whether it
// has done so.
func (qp *QP) Count(p *link.RxPacket) bool {
	r := &qp.resp
	if !r.onlyAck() || r.tail.seq != wire.BTH(p.Data).PSN() || !p.Counter.Count(qp.path, qp.attr.DestQPN) {
		return false
	}
	r.tail = tail{}
	return true
}

// onShortAck handles an acknowledgement of the oldest request, with PSN at, and of no other one, if that was sent in
// one packet, which need not be sent again. Otherwise it returns false, and onResponse has all to do.
func (r *requester) onShortAck(now int64, at uint32) bool {
	if at != r.una || at == r.nxt || r.bad != nil {
		return false
	}
	w := r.sq.At(r.head)
	if 1<<w.Op&shortOps == 0 || w.count != 1 || w.own {
		return false
	}
	r.heard = true
	cost := int(w.Length) + packetCost
	r.una = psn.Next(at)
	w.count, w.begun = 0, false // before the push, after which the slot may be reused
	if qp := r.qp; w.Flags&Signaled != 0 || qp.SigAll {
		e := &qp.Scratch.sent
		e.WRID, e.Status, e.Op, e.Solicited, e.ByteLen = w.WRID, Success, completionOps[w.Op&15], false, 0
		e.QPN, e.QP, e.Send, e.Slot = qp.Num, qp, true, r.head
		qp.SendCQ.Push(e)
	}
	r.head++
	r.progress(now)
	if r.una == r.max {
		r.sentByReference = false
		r.win.setPipe(0)
	}
	r.win.release(cost)
	r.endProbe(now, at)
	return true
}

// onShortSend executes a SEND of one packet, if it is the expected one and finds a receive of the QP's own queue with
// one SGE, where its data fit and may be written.
func (r *responder) onShortSend(p *link.RxPacket, h wire.BTH) bool {
	qp := r.qp
	if h.PSN() != r.epsn || !r.calm() || p.Body != nil || p.Away != nil {
		return false
	}
	data := p.Data[wire.BTHLen : len(p.Data)-h.Pad()]
	wrid, sge := r.rq.peekOne()
	if sge == nil || len(data) > min(qp.attr.MTU, int(sge.Length)) {
		return false
	}
	dst, err := qp.Regions.Check(sge.LKey, sge.Addr, uint64(len(data)), r.pd, mr.LocalWrite)
	if err != nil {
		return false
	}
	if _, ok := mr.Copy(dst, data); !ok {
		return false
	}
	r.rq.takePeeked()
	qp.bytes.received += uint64(len(data))
	r.dupNext, r.gapReported = noRun, false
	seq := r.epsn
	r.step(1, true)
	e := &qp.Scratch.short
	e.WRID, e.Op, e.Solicited, e.ByteLen = wrid, CQRecv, h.Solicited(), uint32(len(data))
	e.QPN, e.PKeyIndex, e.QP, e.RQ = qp.Num, qp.attr.PKeyIndex, qp, r.rq
	r.cq.Push(e)
	if h.AckReq() {
		r.ack(seq)
	}
	return true
}

// calm reports whether the next request may be executed without more ado: it is not the first one, the last message is
// complete, and no NAK waits to be sent.
func (r *responder) calm() bool {
	return !r.fresh && r.phase == between && !r.held && r.tail.kind <= tailAck
}
