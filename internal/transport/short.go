package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A request that is posted to an idle queue, has inline data of one packet and a peer on this host needs little of what
// Transmit does for any request. SendShort does only that. The result is the same: the same packet and the same state
// (decision 49).

// shortOps are the operations of such requests.
const shortOps = 1<<OpSend | 1<<OpSendImm | 1<<OpWrite | 1<<OpWriteImm

// SendShort sends the only request that waits in the send queue of an RC QP, if that is such a request, nothing else is
// to be sent, and tx places the packet where the peer's process reads it. Otherwise it returns false, and Transmit has
// all to do.
func (qp *QP) SendShort(now int64, tx *link.TxBatch) bool {
	r := &qp.req
	if qp.Type != RC || !r.calm() || qp.resp.pending() || r.sq.Posted()-r.cur != 1 {
		return false
	}
	w := r.sq.At(r.cur)
	cost := int(w.Length) + packetCost
	if 1<<w.Op&shortOps == 0 || w.Flags&(Inline|Fence) != Inline || w.Length > r.mtu || w.own ||
		(r.nxt-r.una)&psn.Mask >= maxSpan || !r.win.admits(cost) {
		return false
	}
	op := requestOps[w.Op&15][firstPacket|lastPacket] | qp.prefix()
	info := op.Info()
	pad := int(-w.Length & 3)
	b := tx.AllocNear(qp.path, qp.attr.DestQPN, info.Len+int(w.Length)+pad)
	if b == nil {
		return false
	}
	w.first, w.sent, w.begun, w.count, w.cell = r.nxt, now, true, 1, 1
	r.begun++
	flags := qp.baseFlags
	if w.solicits() {
		flags |= wire.BTHSolicited
	}
	r.wantsAck(true, 1, cost)
	r.startProbe(now, r.nxt)
	r.putHeaders(b, op, pad, qp.attr.PKey, qp.attr.DestQPN, flags|wire.BTHAckReq, w)
	clear(b[info.Len+copy(b[info.Len:], w.Inline):])
	r.from.wqe, r.from.pos = r.cur, w.Length
	qp.Counters.TxDataBytes += uint64(w.Length)
	r.sent(now, w, 1, cost)
	return true
}

// calm reports whether the requester may send the next request without more ado. All requests that have begun were sent
// whole, and none is sent again, so no RNR pause is under way either.
func (r *requester) calm() bool {
	qp := r.qp
	return r.phase == running && r.cur == r.begun && r.bad == nil && r.keep == nil && qp.pace.until == 0 &&
		qp.pace.limit == 0 && qp.path.Rate == 0 && !qp.congestion.due
}
