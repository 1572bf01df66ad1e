package transport

import (
	"cmp"
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// An ack request is set on the last packet of each message, and within messages on one of maxQuiet packets (as rxe
// does) and once per quarter of the window.
const maxQuiet = 64

// Positions of a packet in its message, used as index of an opcode table.
const (
	lastPacket  = 1
	firstPacket = 2
)

// requestOps holds the opcodes of a message's middle, last, first and only packet.
var requestOps = [16][4]wire.Opcode{
	OpSend:     {wire.SendMiddle, wire.SendLast, wire.SendFirst, wire.SendOnly},
	OpSendImm:  {wire.SendMiddle, wire.SendLastImm, wire.SendFirst, wire.SendOnlyImm},
	OpSendInv:  {wire.SendMiddle, wire.SendLastInv, wire.SendFirst, wire.SendOnlyInv},
	OpWrite:    {wire.WriteMiddle, wire.WriteLast, wire.WriteFirst, wire.WriteOnly},
	OpWriteImm: {wire.WriteMiddle, wire.WriteLastImm, wire.WriteFirst, wire.WriteOnlyImm},
	OpCmpSwap:  {firstPacket | lastPacket: wire.CompareSwap},
	OpFetchAdd: {firstPacket | lastPacket: wire.FetchAdd},

	OpAtomicWrite: {firstPacket | lastPacket: wire.AtomicWrite},
}

// Sets of operations, one bit each.
const (
	atomicOps    = 1<<OpCmpSwap | 1<<OpFetchAdd
	placementOps = 1<<OpFlush | 1<<OpAtomicWrite
	answeredOps  = 1<<OpRead | atomicOps | placementOps
)

func (w *SendWQE) isAtomic() bool    { return 1<<w.Op&atomicOps != 0 }
func (w *SendWQE) isPlacement() bool { return 1<<w.Op&placementOps != 0 }

// waitsForAnswer reports whether the response to w is not a plain ACK.
func (w *SendWQE) waitsForAnswer() bool { return 1<<w.Op&answeredOps != 0 }

// solicits reports whether w's last packet carries the SE bit (V-SEND-10).
func (w *SendWQE) solicits() bool {
	return w.Flags&Solicited != 0 && w.Op != OpWrite && !w.waitsForAnswer()
}

// cellEnd returns the end of the READ request that covers PSN number off of the message. All requests of a READ,
// including retransmissions, end at multiples of its cell.
func (w *SendWQE) cellEnd(off uint32) uint32 { return min(w.count, off-off%w.cell+w.cell) }

// send appends the next packet, which belongs to w. It returns false if tx is full or w failed.
func (r *requester) send(now int64, tx *link.TxBatch, w *SendWQE) bool {
	switch {
	case w.Op == OpRead:
		return r.sendRead(now, tx, w)
	case w.isAtomic():
		return r.sendAtomic(now, tx, w)
	case w.Op == OpFlush:
		return r.sendFlush(now, tx, w)
	case w.Op == OpTSO:
		return r.sendSegment(now, tx, w)
	}
	return r.sendData(now, tx, w)
}

// sendData appends a packet of a SEND, WRITE or ATOMIC WRITE.
func (r *requester) sendData(now int64, tx *link.TxBatch, w *SendWQE) bool {
	qp := r.qp
	off := (r.nxt - w.first) & psn.Mask
	pos := off << r.shift
	path, dest, pkey := qp.path, qp.attr.DestQPN, qp.attr.PKey
	if qp.Type == UD {
		path, dest, pkey = w.Path, w.RemoteQPN, cmp.Or(w.PKey, pkey)
	}
	n, segs := min(w.Length-pos, r.mtu), uint32(1)
	var ref reference
	if w.count-off > 1 {
		var most int
		if ref, most = r.byReference(w, pos, tx); most == 0 {
			most = tx.Train(path, dest)
		}
		segs = r.couple(w.count-off, most)
		n = min(w.Length-pos, segs<<r.shift)
	}
	if !r.gather(now, w, pos, n) {
		return false
	}
	if !ref.worth(n) {
		ref.share = nil
	}
	place := 0
	if off == 0 {
		place = firstPacket
	}
	last := off+segs == w.count
	if last {
		place |= lastPacket
	}
	op := requestOps[w.Op&15][place] | qp.prefix()
	info := op.Info()
	pad := -n & 3
	b := ref.allocate(tx, path, dest, info.Len, int(n), int(pad), segs > 1)
	if b == nil {
		return false
	}
	flags := qp.baseFlags
	if last && w.solicits() {
		flags |= wire.BTHSolicited
	}
	cost := int(n) + int(segs)*packetCost
	if r.reliable && r.wantsAck(last, segs, cost) {
		flags |= wire.BTHAckReq
		r.startProbe(now, r.nxt)
	}
	r.putHeaders(b, op, int(pad), pkey, dest, flags, w)
	copied := true
	switch {
	case ref.share != nil:
		r.sentByReference = true
		r.win.widen()
	case r.offloads(w):
		if copied = copyPieces(b, info.Len, r.pieces...); copied {
			qp.IPOffload.Fill(b[info.Len : info.Len+int(n)])
		}
	case w.Flags&Inline != 0 && !tx.Sums(b): // the queue's memory is always mapped
		clear(b[info.Len+copy(b[info.Len:], r.pieces[0]):])
	default:
		copied = copyPayload(tx, b, info.Len, r.pieces...)
	}
	if !copied {
		r.reject(now, w, LocProtErr, r.describeUnmapped(w, pos))
		return false
	}
	r.from.pos = pos + n
	qp.bytes.sent += uint64(n)
	qp.charge(now, path, info.Len, int(segs), n+pad)
	r.tell(tx, w)
	r.sent(now, w, segs, cost)
	return true
}

// allocate returns space for a packet, or for a train of packets: head bytes of headers, and n bytes of payload with
// their pad unless they are sent by the reference.
func (ref reference) allocate(tx *link.TxBatch, path *link.Path, qpn uint32, head, n, pad int, train bool) []byte {
	switch {
	case ref.share != nil:
		return tx.AllocRef(path, qpn, head, ref.share, ref.off, n)
	case train:
		return tx.AllocTrain(path, qpn, head+n+pad)
	}
	return tx.Alloc(path, qpn, head+n+pad)
}

// couple returns the number of packets to send as one train: at most left, at most as many as most bytes hold, and at
// most as many as the window admits.
func (r *requester) couple(left uint32, most int) uint32 {
	n := min(left, uint32(most)>>r.shift)
	if r.reliable {
		n = min(n, uint32(max(0, r.win.left())/(int(r.mtu)+packetCost)))
	}
	return max(1, n)
}

// putHeaders writes the BTH of a SEND or WRITE packet, and the extended headers that its opcode has.
func (r *requester) putHeaders(b []byte, op wire.Opcode, pad int, pkey uint16, dest, flags uint32,
	w *SendWQE) {
	wire.BTH(b).Put(op, pad, pkey, dest, r.nxt, flags)
	info := op.Info()
	if info.RETH != 0 {
		wire.RETH(b[info.RETH:]).Put(w.RemoteAddr, w.RKey, w.Length)
	}
	if info.DETH != 0 {
		qkey := w.RemoteQKey
		if qkey>>31 != 0 {
			qkey = r.qp.attr.QKey // V-SEND-14
		}
		wire.DETH(b[info.DETH:]).Put(qkey, cmp.Or(r.qp.SrcNum, r.qp.Num))
	}
	w.putXRCETH(b, info)
	if at := info.Imm + info.IETH; at != 0 {
		binary.BigEndian.PutUint32(b[at:], w.Imm)
	}
}

// putXRCETH writes the XRCETH, which every request of an XRC connection has.
func (w *SendWQE) putXRCETH(b []byte, info *wire.Info) {
	if info.XRCETH != 0 {
		wire.XRCETH(b[info.XRCETH:]).Put(w.RemoteSRQN)
	}
}

// ask appends a request without data, with the headers common to such requests. It returns nil if tx is full.
func (r *requester) ask(now int64, tx *link.TxBatch, op wire.Opcode, w *SendWQE) ([]byte, *wire.Info) {
	op |= r.qp.prefix()
	info := op.Info()
	b := tx.Alloc(r.qp.path, r.qp.attr.DestQPN, info.Len)
	if b == nil {
		return nil, nil
	}
	r.wantsAck(true, 1, 0)
	r.startProbe(now, r.nxt)
	wire.BTH(b).Put(op, 0, r.qp.attr.PKey, r.qp.attr.DestQPN, r.nxt, r.qp.baseFlags|wire.BTHAckReq)
	w.putXRCETH(b, info)
	r.qp.charge(now, r.qp.path, info.Len, 1, 0)
	return b, info
}

// sendRead appends a request for the rest of the READ's cell: the whole cell, or the unanswered part of it.
func (r *requester) sendRead(now int64, tx *link.TxBatch, w *SendWQE) bool {
	b, info := r.ask(now, tx, wire.ReadRequest, w)
	if b == nil {
		return false
	}
	off := (r.nxt - w.first) & psn.Mask
	end := w.cellEnd(off)
	at := r.bytes(w, off)
	wire.RETH(b[info.RETH:]).Put(w.RemoteAddr+uint64(at), w.RKey, r.bytes(w, end)-at)
	if off%w.cell != 0 {
		r.restart = r.nxt
	}
	r.tell(tx, w)
	r.sent(now, w, end-off, r.cost(w, off, end))
	return true
}

// sendAtomic appends a FETCH ADD or COMPARE SWAP.
func (r *requester) sendAtomic(now int64, tx *link.TxBatch, w *SendWQE) bool {
	b, info := r.ask(now, tx, requestOps[w.Op&15][firstPacket|lastPacket], w)
	if b == nil {
		return false
	}
	add, compare := w.CompareAdd, uint64(0)
	if w.Op == OpCmpSwap {
		add, compare = w.Swap, w.CompareAdd
	}
	wire.AtomicETH(b[info.AtomicETH:]).Put(w.RemoteAddr, w.RKey, add, compare)
	r.tell(tx, w)
	r.sent(now, w, 1, r.cost(w, 0, 1))
	return true
}

// wantsAck reports whether a packet requests an acknowledgement: the last packet of a message, and enough others that
// the window never waits for an ACK that was not requested.
func (r *requester) wantsAck(last bool, packets uint32, cost int) bool {
	r.quietPackets += int16(packets)
	r.quietBytes += int32(cost)
	full := int(r.mtu) + packetCost
	if last || r.quietPackets > maxQuiet || int(r.quietBytes) >= r.win.size/4 || !r.win.fits(cost+full) {
		r.quietPackets, r.quietBytes = 0, 0
		return true
	}
	return false
}

// tell describes the packet nxt, of w, to a capture.
func (r *requester) tell(tx *link.TxBatch, w *SendWQE) {
	if tx.Tap != nil {
		again := uint32(0)
		if r.reliable && r.resends() {
			again = (r.max - r.nxt) & psn.Mask
		}
		tx.Tap.Request(w.WRID, again, r.why)
	}
}

// sent advances past a packet of w with n PSNs; a train and a READ request have several.
func (r *requester) sent(now int64, w *SendWQE, n uint32, cost int) {
	if w.Op != OpRead {
		r.took = int16(n)
	}
	if !r.reliable {
		r.sentUnreliably(w, n)
		return
	}
	if w.waitsForAnswer() {
		r.reads++
	}
	if r.nxt == r.una || r.qp.pace.until != 0 {
		r.rtt.from = now
		// Early retransmits do not postpone the ACK timeout, unless the packet had to wait for room in the link.
		if r.rtt.early == 0 || r.nxt == r.una && now-r.timer >= int64(r.ackTimeout()) {
			r.timer = now
		}
	}
	next := (r.nxt + n) & psn.Mask
	if (next-r.una)&psn.Mask > (r.max-r.una)&psn.Mask {
		r.max = next
	} else {
		r.qp.Counters.RetransmitPackets++
	}
	r.nxt = next
	r.win.add(cost)
	if (next-w.first)&psn.Mask == w.count && !r.isCheck(w) {
		r.cur++
	}
}

// sentUnreliably is sent for UC and UD: a message is complete once its last packet was sent.
func (r *requester) sentUnreliably(w *SendWQE, n uint32) {
	r.nxt = psn.Add(r.nxt, int(n))
	r.una, r.max = r.nxt, r.nxt
	if (r.nxt-w.first)&psn.Mask == w.count {
		r.cur++
		r.finish(w, Success, nil)
		r.runDeferred()
	}
}
