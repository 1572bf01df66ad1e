package transport

import (
	"math"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Never is the deadline of a QP without pending timers.
const Never = math.MaxInt64

// OnPacket handles a packet for this QP: it checks state, opcode, P_Key and source, then passes requests to the
// responder and responses to the requester. A packet that fails a check is dropped and counted (V-QPS-05).
//
// plain reports that the QP has nothing more to send than before but, perhaps, an acknowledgement. The caller need not
// ask for Due, which reads memory that nothing else of a plain request needs.
func (qp *QP) OnPacket(now int64, p *link.RxPacket) (plain bool) {
	if !qp.onShort(now, p) {
		qp.onPacket(now, p)
		return false
	}
	return wire.BTH(p.Data).Opcode() == wire.RC|wire.SendOnly && qp.pace.until == 0 && !qp.resp.cnpDue
}

// onPacket is OnPacket for any packet.
func (qp *QP) onPacket(now int64, p *link.RxPacket) {
	h := wire.BTH(p.Data)
	op := h.Opcode()
	info := op.Info()
	switch st := qp.State(); {
	case !st.Receives():
		qp.Counters.BadState++
		return
	case info.Len == 0 || op.Transport() != qp.prefix() && (op != wire.CNP || qp.Type == UD) || p.Train && qp.Type == UD:
		qp.Counters.BadOpcode++
		return
	case !qp.permits(p):
		qp.badPKey(p)
		return
	case qp.Type == UD && !qp.here(p):
		qp.Counters.BadSource++
		return
	case qp.Type != UD && (qp.attr.Mig != Migrated || !reaches(qp.path, p)) && !qp.arrives(p):
		qp.Counters.BadSource++
		return
	}
	qp.req.heardFrom(now)
	response := info.Flags&wire.Response != 0
	switch {
	case op == wire.CNP:
		qp.onCNP(now)
		return
	case p.TClass&wire.ECNMask == wire.ECNMarked && qp.Type != UD:
		qp.onMarked(now, response)
	}
	switch {
	case response && qp.Type != XRCRecv:
		qp.req.onResponse(now, p, info)
	case !response && qp.Type != XRCSend:
		qp.resp.onRequest(p, info)
	default:
		qp.Counters.BadOpcode++
	}
}

// Replying reports whether responses to the peer wait to be sent, and not for their time: a rate limit delays those of
// READs only.
func (qp *QP) Replying() bool {
	r := &qp.resp
	return r.pending() && (qp.pace.until == 0 || r.todo == r.head || r.at(r.todo).kind != resRead)
}

// Due is what a QP has to send.
type Due uint8

// What a QP has to send.
const (
	DueNothing Due = iota // nothing
	DueAck                // nothing but the acknowledgement of complete messages; see SendAck
	DueMore               // perhaps more; see Transmit
)

// Due returns what the QP has to send now.
func (qp *QP) Due() Due {
	switch {
	case qp.resp.cnpDue, qp.pace.until != 0, qp.req.pending():
		return DueMore
	case qp.resp.onlyAck():
		return DueAck
	case qp.resp.pending():
		return DueMore
	}
	return DueNothing
}

// SendAck is Transmit of a QP that has only an acknowledgement to send. It reports whether there was room.
func (qp *QP) SendAck(tx *link.TxBatch) bool { return qp.resp.sendTail(tx) }

// PlaceAck is SendAck to a process of this host. It reports whether the peer is one, and whether there was room. The
// caller publishes what was placed.
func (qp *QP) PlaceAck(near link.Direct) (mine, placed bool) { return qp.resp.placeAck(near) }

// Near reports whether tx places the QP's packets where the process of the peer reads them.
func (qp *QP) Near(tx *link.TxBatch) bool { return tx.Train(qp.path, qp.attr.DestQPN) > 0 }

// Transmit appends at most budget packets to tx, responses before requests. It reports whether there is more to send
// at once: the batch is full or the budget used up.
func (qp *QP) Transmit(now int64, tx *link.TxBatch, budget int) (more bool) {
	qp.open(now)
	before := tx.Count()
	if qp.resp.cnpDue && !qp.sendCNP(tx) {
		return true
	}
	if budget > 1 && tx.AckLast && qp.resp.onlyAck() && qp.req.leads(tx) {
		qp.req.transmit(now, tx, 1)
	}
	if qp.resp.transmit(now, tx, budget-(tx.Count()-before)) {
		return true
	}
	return qp.req.transmit(now, tx, budget-(tx.Count()-before))
}

// OnDoorbell handles work posted to the send queue or, in ERR, to the receive queue.
func (qp *QP) OnDoorbell(now int64) {
	switch qp.State() {
	case Err:
		qp.req.flush()
		qp.resp.flush()
	case SQE:
		qp.req.flush()
	}
}

// Deadline returns the time at which OnTimer must be called, or Never.
func (qp *QP) Deadline() int64 {
	until := qp.pace.until // first, so that the check for nil needs no line of its own
	d := qp.req.deadline()
	if until != 0 {
		d = min(d, until)
	}
	return d
}

// OnTimer handles an expired deadline. A call before the deadline does nothing.
func (qp *QP) OnTimer(now int64) {
	qp.open(now)
	qp.req.onTimer(now)
}

// Fail moves the QP to ERR because of cause and raises ev unless it is 0 (V-QPS-15). All work requests are flushed
// (V-QPS-16).
func (qp *QP) Fail(cause *Failure, ev Event) {
	if qp.leave(Err, cause) {
		qp.failed(ev)
	}
}

// leave moves the QP to s, ERR or SQE, because of cause. It reports false if the QP was in ERR. The completion of what
// has failed comes after it: a program that polls it finds the QP in that state. The flushed work requests come last.
func (qp *QP) leave(s State, cause *Failure) bool {
	if qp.State() == Err {
		return false
	}
	if qp.first == nil {
		qp.first = cause
	}
	qp.state.Store(uint32(s))
	qp.Host.StateChanged(qp, s)
	return true
}

// failed is what follows leave to ERR.
func (qp *QP) failed(ev Event) {
	if ev != 0 {
		qp.Host.Raise(qp, ev)
	}
	qp.enterErr()
}

// enterErr flushes both queues of a QP that has entered ERR.
func (qp *QP) enterErr() {
	qp.resp.cnpDue = false
	qp.req.flush()
	qp.resp.flush()
	if qp.Type == XRCRecv || qp.RQ != nil && qp.RQ.Shared() {
		qp.Host.Raise(qp, EventQPLastWQEReached)
	}
}

// prefix returns the transport bits of the opcodes that the QP accepts.
func (qp *QP) prefix() wire.Opcode {
	switch qp.Type {
	case RC:
		return wire.RC
	case UC:
		return wire.UC
	case UD:
		return wire.UD
	default:
		return wire.XRC
	}
}
