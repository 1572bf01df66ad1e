package transport

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// IPOffload handles the IP packets in the messages of a UD QP. The transport itself does not know how IP is put into
// messages.
type IPOffload struct {
	// Fill computes the checksums of the IP packet in a message, and Verify reports whether they are right. Messages
	// without an IP packet stay as they are.
	Fill   func(message []byte)
	Verify func(message []byte) bool
	// Start prepares the header of a TSO request, or returns an error if messages cannot begin with it.
	Start func(header []byte) error
	// Segment completes a message of a TSO request, which consists of the prepared header and of data.
	Segment func(message []byte, s Segment)
}

// Segment is the place of a message in its TSO request.
type Segment struct {
	Index uint32 // number of messages before it
	Sent  uint32 // bytes of data before it
	Last  bool
}

// offloads reports whether the device changes the messages of w.
func (r *requester) offloads(w *SendWQE) bool { return w.Flags&IPCsum != 0 && r.qp.IPOffload != nil }

// segments returns the number of messages of a TSO request.
func (w *SendWQE) segments() uint32 {
	return max(1, (w.Length+uint32(w.MSS)-1)/max(1, uint32(w.MSS)))
}

// unfitSegments returns the error of a TSO request that is invalid for any peer.
func (r *requester) unfitSegments(w *SendWQE) (Status, string) {
	if r.qp.IPOffload == nil {
		return LocQPOpErr, "the device does not segment messages of this QP"
	}
	if uint32(len(w.Inline))+min(w.Length, uint32(w.MSS)) > r.mtu {
		return LocLenErr, "the header and a segment must fit one packet"
	}
	if err := r.qp.IPOffload.Start(w.Inline); err != nil {
		return LocQPOpErr, err.Error()
	}
	return r.checkAll(w, 0)
}

// sendSegment appends the next message of a TSO request: the request's header and the next MSS bytes of its data.
func (r *requester) sendSegment(now int64, tx *link.TxBatch, w *SendWQE) bool {
	qp := r.qp
	s := Segment{Index: (r.nxt - w.first) & psn.Mask}
	s.Sent, s.Last = s.Index*uint32(w.MSS), s.Index+1 == w.count
	n := min(w.Length-s.Sent, uint32(w.MSS))
	if !r.gather(now, w, s.Sent, n) {
		return false
	}
	op := requestOps[OpSend][firstPacket|lastPacket] | qp.prefix()
	info := op.Info()
	head := info.Len + len(w.Inline)
	pad := -(len(w.Inline) + int(n)) & 3
	b := tx.Alloc(w.Path, w.RemoteQPN, head+int(n)+pad)
	if b == nil {
		return false
	}
	flags := qp.baseFlags
	if s.Last && w.solicits() {
		flags |= wire.BTHSolicited
	}
	r.putHeaders(b, op, pad, qp.attr.PKey, w.RemoteQPN, flags, w)
	copy(b[info.Len:], w.Inline)
	if !copyPieces(b, head, r.pieces...) {
		r.reject(now, w, LocProtErr, r.describeUnmapped(w, s.Sent))
		return false
	}
	qp.IPOffload.Segment(b[info.Len:head+int(n)], s)
	r.from.pos = s.Sent + n
	bytes := uint32(len(w.Inline)) + n
	qp.bytes.sent += uint64(bytes)
	qp.charge(now, w.Path, info.Len, 1, bytes+uint32(pad))
	r.tell(tx, w)
	r.sent(now, w, 1, int(bytes)+packetCost)
	return true
}
