package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A request that has data of one packet, inline or of one SGE, and a peer on this host needs little of what is done for
// any request. placeShort and sentShort do only that. The result is the same: the same packet and the same state
// (decision 49).

// shortOps are the operations of such requests.
const shortOps = 1<<OpSend | 1<<OpSendImm | 1<<OpWrite | 1<<OpWriteImm

// PlaceShort places the packet of the only request that waits in the send queue of an RC QP where the peer's process
// reads it, if it is such a request and nothing else is to be sent. Otherwise it returns false, and Transmit has all to
// do. After it the caller publishes what was placed, and calls SentShort: the peer need not wait for what that does.
func (qp *QP) PlaceShort(near link.Direct) bool {
	r := &qp.req
	return qp.Type == RC && r.calm() && !qp.resp.pending() && r.sq.Posted()-r.cur == 1 && r.placeShort(near)
}

// SentShort notes that the request that PlaceShort has placed was sent.
func (qp *QP) SentShort(now int64) { qp.req.sentShort(now) }

// transmitShort appends at most budget packets of such requests, those that come next, and returns their number.
func (r *requester) transmitShort(now int64, tx *link.TxBatch, budget int) (n int) {
	if r.qp.Type != RC || tx.Tap != nil {
		return 0
	}
	posted := r.sq.Posted()
	if r.cur == posted || !r.qp.Near(tx) {
		return 0
	}
	for budget = min(budget, tx.Left()); n < budget && r.cur != posted && r.calm() && r.placeShort(tx.Direct); n++ {
		tx.Placed()
		r.sentShort(now)
	}
	return n
}

// placeShort places the packet of the request at cur, if it is such a request. calm has returned true.
func (r *requester) placeShort(near link.Direct) bool {
	qp := r.qp
	w := r.sq.At(r.cur)
	if 1<<w.Op&shortOps == 0 || w.Flags&Fence != 0 || w.Length > r.mtu || w.own ||
		(r.nxt-r.una)&psn.Mask >= maxSpan || !r.win.admits(int(w.Length)+packetCost) {
		return false
	}
	data, ok := r.shortData(w)
	if !ok {
		return false
	}
	op := requestOps[w.Op&15][firstPacket|lastPacket] | qp.prefix()
	info := op.Info()
	pad := int(-w.Length & 3)
	b := r.shortPlace(near, info.Len+len(data)+pad)
	if b == nil {
		return false
	}
	flags := qp.baseFlags | wire.BTHAckReq
	if w.solicits() {
		flags |= wire.BTHSolicited
	}
	r.putHeaders(b, op, pad, qp.attr.PKey, qp.attr.DestQPN, flags, w)
	if w.Flags&Inline != 0 {
		n := copy(b[info.Len:], data)
		if pad > 0 {
			clear(b[info.Len+n:])
		}
	} else {
		r.unmapped = !copyPieces(b, info.Len, data)
	}
	return true
}

// shortPlace returns the place of a packet of n bytes, a counted one unless an earlier request waits for data, or the
// QP waits for the M bit of the peer's packets: an acknowledgement by counting has none.
func (r *requester) shortPlace(near link.Direct, n int) (b []byte) {
	qp := r.qp
	if r.reads > 0 || qp.attr.Mig != Migrated {
		b, _ = near.Place(qp.path, qp.attr.DestQPN, n, false)
	} else {
		b, _ = near.PlaceCounted(qp.path, qp.attr.DestQPN, n, link.Ack{From: qp, PSN: r.nxt, Life: r.life})
	}
	return b
}

// shortData returns the data of a request, if they are inline or of one SGE, which is readable.
func (r *requester) shortData(w *SendWQE) (data []byte, ok bool) {
	if w.Flags&Inline != 0 {
		return w.Inline, true
	}
	if len(w.SGEs) != 1 || w.Length == 0 {
		return nil, false
	}
	s := &w.SGEs[0]
	data, err := r.qp.Regions.Check(s.LKey, s.Addr, uint64(s.Length), r.qp.PD, 0)
	return data, err == nil
}

// sentShort notes that the request that placeShort has placed was sent.
func (r *requester) sentShort(now int64) {
	qp := r.qp
	w := r.sq.At(r.cur)
	cost := int(w.Length) + packetCost
	w.first, w.sent, w.begun, w.count, w.cell = r.nxt, now, true, 1, 1
	r.begun++
	r.wantsAck(true, 1, cost)
	r.startProbe(now, r.nxt)
	r.from.wqe, r.from.pos = r.cur, w.Length
	if w.Flags&Inline == 0 {
		r.from.sge, r.from.off = 0, w.Length
		if r.unmapped {
			r.unmapped, r.from.pos = false, nowhere
			r.reject(now, w, LocProtErr, r.describeUnmapped(w, 0))
			return
		}
	}
	qp.bytes.sent += uint64(w.Length)
	r.sent(now, w, 1, cost)
}

// calm reports whether the requester may send the next request without more ado. All requests that have begun were sent
// whole, and none is sent again, so no RNR pause is under way either.
func (r *requester) calm() bool {
	qp := r.qp
	return r.phase == running && r.cur == r.begun && r.bad == nil && r.keep == nil && qp.pace.until == 0 &&
		qp.pace.limit == 0 && qp.path.Rate == 0 && !qp.resp.cnpDue
}
