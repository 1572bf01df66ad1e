package transport

import (
	"math/bits"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// requesterWQE is the requester's state of a work request.
type requesterWQE struct {
	first uint32 // PSN of the first packet
	count uint32 // PSNs of the message: its packets, or those of a READ response; 0: not computed yet
	cell  uint32 // READ: PSNs that one request packet asks for
	begun bool   // PSNs are assigned
	own   bool   // posted by the responder; see tagged.go
	sent  int64  // when the first packet was sent
}

// sendPhase is what the requester may send.
type sendPhase uint8

const (
	halted   sendPhase = iota // RESET to RTR, SQE, ERR: nothing is sent
	running                   // RTS
	draining                  // SQD: started requests are finished, no request starts
	drained                   // SQD
)

// requester is the sending half of a QP. Work requests and PSNs advance in order:
//
//	queue:  head <= cur <= begun <= stop()     PSNs (RC):  una <= nxt <= max
//
// Everything before head is complete, and everything before una is acknowledged. cur is the work request of the
// packet nxt. Packets between nxt and max, and requests between cur and begun, were sent before and are sent again: a
// retry always goes back to una.
type requester struct {
	srqn    uint32   // XRC: the SRQ of the latest request; 0: none was sent
	to      cursor   // destination of the READ response una
	pieces  [][]byte // payload of one packet, set by gather
	restart uint32   // PSN of the latest READ request that did not start at a cell boundary
	badAt   uint32   // see bad
	why     string   // reason of the last rewind
	rndvs   []rndv   // by slot; nil until the first
	value   [8]byte  // scratch; result of an atomic
	stalled int64    // when the last wait for an answer ended without one

	// Each message uses what follows, and the end of win.
	win  window
	from cursor // source of the packet nxt

	qp   *QP
	sq   *SendQueue
	keep *keepAlive // nil without keep-alive
	bad  *Failure   // deferred failure of work request badAt, until those before it are complete

	head, cur, begun uint32
	una, nxt, max    uint32
	shift            uint8 // log2 of the MTU
	phase            sendPhase
	reliable         bool // expects acknowledgements: RC, XRC
	sentByReference  bool // unacknowledged packets were sent by reference
	rewoundByNAK     bool // rewound to una: responses may belong to the first transmission
	unmapped         bool // the data of the request that placeShort has placed could not be read
	rewound          bool // went back to una for any reason: answers to what follows it may be those from before
	heard            bool // a response has arrived since RESET

	rtt          rttEstimator
	life         uint32 // another number from RTR to RTS and by RESET: voids marks, connections and counted requests
	quietBytes   int32  // sent since the last packet that requested an acknowledgement
	quietPackets int16  // the same
	took         int16  // PSNs of the last SEND or WRITE packet sent
	reads        int16  // requests between una and nxt that wait for a response
	retries      uint16 // see retry.go, also of the next fields
	timer        int64  // start of the wait for an acknowledgement
	rnrUntil     int64  // end of the pause that an RNR NAK requested; 0: none
	rnrTries     uint32
	mtu          uint32
}

// lives is the last number that a requester has got as its life. No two of the process have the same, so that what was
// sent by a QP is not taken for what another one of the same number has sent.
var lives atomic.Uint32

func (r *requester) init(qp *QP) {
	r.qp, r.sq, r.reliable = qp, qp.SQ, qp.Type.reliable()
	r.win.limit, r.win.size = DefaultWindow, DefaultWindow
}

// start enables sending from PSN attr.SQPSN on (RTR -> RTS).
func (r *requester) start() {
	qp := r.qp
	r.setMTU()
	r.una, r.nxt, r.max = qp.attr.SQPSN, qp.attr.SQPSN, qp.attr.SQPSN
	r.restart = r.una
	r.life = lives.Add(1)
	r.win.begin()
	r.resume()
}

// setMTU sets the longest payload of a packet. That of UD is the port's, which may change from message to message.
func (r *requester) setMTU() {
	qp := r.qp
	r.mtu = uint32(qp.attr.MTU)
	if qp.Type == UD {
		r.mtu = wire.MaxPayload
		if qp.PortMTU != nil {
			r.mtu = uint32(qp.PortMTU())
		}
	}
	r.shift = uint8(bits.Len32(r.mtu) - 1)
}

// stop returns the index of the first work request that must not be sent now.
func (r *requester) stop() uint32 {
	switch {
	case r.bad != nil:
		return r.badAt
	case r.phase == running:
		return r.sq.Posted()
	case r.phase == halted:
		return r.cur
	}
	return r.begun
}

// pending reports whether a packet can be sent now.
func (r *requester) pending() bool {
	if r.keep != nil && r.checking() {
		return r.phase != halted && r.rnrUntil == 0
	}
	if r.cur == r.stop() || r.rnrUntil != 0 || r.qp.pace.until != 0 {
		return false
	}
	w := r.sq.At(r.cur)
	if w.isLocal() {
		return r.cur == r.head
	}
	return !r.reliable || r.admits(w)
}

// leads reports whether the next packet is a short one to which tx can append an acknowledgement; see
// link.TxBatch.AckLast. It is at least as long as the acknowledgement, so that both form a GSO run.
func (r *requester) leads(tx *link.TxBatch) bool {
	if r.sq == nil || r.cur == r.stop() {
		return false
	}
	w := r.sq.At(r.cur)
	return w.Length >= wire.AETHLen && w.Length <= shortLead && tx.Left() >= 2 && !r.qp.Near(tx)
}

// shortLead is the maximum length in bytes of a message whose packet precedes an acknowledgement.
const shortLead = 512

// admits reports whether fence, initiator depth and window permit the next packet of w.
func (r *requester) admits(w *SendWQE) bool {
	if w.count == 0 {
		r.measure(w)
	}
	off := uint32(0)
	if w.begun {
		off = (r.nxt - w.first) & psn.Mask
	} else if w.Flags&Fence != 0 && r.reads > 0 {
		return false
	}
	n := uint32(1)
	if w.waitsForAnswer() {
		if r.reads > 0 && int(r.reads) >= r.qp.attr.MaxRdAtomic {
			return false
		}
		n = w.cellEnd(off) - off
	}
	if (r.nxt-r.una)&psn.Mask+n > maxSpan {
		return false
	}
	// Packets that did not request an acknowledgement must be followed by one that does.
	return r.win.admits(r.cost(w, off, off+n)) || r.quietPackets > 0
}

// measure computes the number of PSNs of w.
func (r *requester) measure(w *SendWQE) {
	w.count, w.cell = 1, 1
	if w.isAtomic() || w.isPlacement() || w.Length > maxMessage {
		return
	}
	if w.Op == OpTSO {
		w.count = w.segments()
		return
	}
	w.count = max(1, (w.Length+r.mtu-1)>>r.shift)
	if w.Op == OpRead {
		// A share of the window for each request that may be outstanding, so that the responses fill the
		// window and do not exceed it.
		share := r.win.most() / max(1, min(4, r.qp.attr.MaxRdAtomic))
		w.cell = min(w.count, uint32(max(1, min(share/(int(r.mtu)+packetCost), maxSpan/4))))
	}
}

// cost returns the window cost of the PSNs from a to b of w.
func (r *requester) cost(w *SendWQE, a, b uint32) int {
	if a == 0 && b == 1 && w.Length <= r.mtu {
		return int(w.Length) + packetCost
	}
	return int(r.bytes(w, b)-r.bytes(w, a)) + int(b-a)*packetCost
}

// bytes returns the number of bytes of w's message before its PSN number n.
func (r *requester) bytes(w *SendWQE, n uint32) uint32 {
	return uint32(min(uint64(n)<<r.shift, uint64(w.Length)))
}

// transmit appends at most budget packets to tx and reports whether more can be sent at once.
func (r *requester) transmit(now int64, tx *link.TxBatch, budget int) (more bool) {
	budget -= r.transmitShort(now, tx, budget)
	for ; r.pending(); budget -= int(r.took) {
		r.took = 1
		if budget <= 0 {
			return true
		}
		w := r.current()
		if w.isLocal() {
			if !r.local(now, w) {
				return r.pending()
			}
			continue
		}
		if !w.begun && !r.begin(now, w) {
			return false
		}
		if !r.send(now, tx, w) {
			// The batch is full, or w failed.
			return r.pending()
		}
	}
	return false
}

// begin assigns PSNs to w, or rejects it.
func (r *requester) begin(now int64, w *SendWQE) bool {
	if r.qp.Type == UD {
		r.setMTU()
	}
	if w.count == 0 {
		r.measure(w)
	}
	if st, why := r.unfit(w); st != Success {
		r.reject(now, w, st, why)
		return false
	}
	w.first, w.sent, w.begun = r.nxt, now, true
	if r.qp.Type == XRCSend {
		r.srqn = w.RemoteSRQN
	}
	r.begun++
	return true
}

// unfit returns the error of a work request that is invalid for any peer.
func (r *requester) unfit(w *SendWQE) (Status, string) {
	qp := r.qp
	switch {
	case !qp.Type.does(w.Op):
		return LocQPOpErr, "this QP type does not support the operation"
	case w.waitsForAnswer() && qp.attr.MaxRdAtomic == 0:
		// rxe never completes such a request. Here it fails: it could never be sent.
		return LocQPOpErr, "READ, atomics, FLUSH and ATOMIC WRITE require max_rd_atomic above 0 (in rdmacm: " +
			"ConnParam.InitiatorDepth of this side, and ResponderResources of the peer)"
	case w.isAtomic() && w.Length < 8:
		return LocLenErr, "an atomic requires 8 bytes for its result"
	case w.Op == OpAtomicWrite && w.Length != wire.AtomicWriteLen:
		return LocLenErr, "the length of an ATOMIC WRITE must be 8 bytes"
	case w.Length > maxMessage:
		return LocLenErr, "the message is longer than 2^31 bytes"
	case qp.Type == UD && !qp.fromHere(w.Path):
		return LocQPOpErr, "the address handle is of another port than the QP"
	case w.Op == OpTSO:
		return r.unfitSegments(w)
	case qp.Type == UD && w.Length > r.mtu:
		return LocLenErr, "a UD message must fit one packet"
	case w.waitsForAnswer() && !w.isPlacement():
		return r.checkAll(w, mr.LocalWrite)
	case w.count > 1 && w.Flags&Inline == 0:
		return r.checkAll(w, 0)
	}
	return Success, ""
}

// does reports whether a QP of the type supports the operation (V-SEND-07). The verbs permit SEND_WITH_INV on UC, but
// there is no such packet (IBTA table 35).
func (t Type) does(op Op) bool {
	switch op {
	case OpSend, OpSendImm:
		return true
	case OpWrite, OpWriteImm, OpLocalInv, OpBindMW:
		return t != UD
	case OpTSO:
		return t == UD
	case OpSendInv, OpRead, OpCmpSwap, OpFetchAdd, OpFlush, OpAtomicWrite:
		return t.reliable()
	}
	return false
}

// reject fails w, the work request at cur, as soon as those before it are complete.
func (r *requester) reject(now int64, w *SendWQE, st Status, why string) {
	r.bad, r.badAt = r.failure(now, w, st, why), r.cur
	r.runDeferred()
}

// runDeferred performs actions that waited for earlier work requests to complete: a deferred failure, the end of
// draining.
func (r *requester) runDeferred() {
	if r.bad != nil && r.head == r.badAt && (r.keep == nil || !r.keep.out) {
		r.fail(r.bad)
	}
	if r.phase == draining && r.head == r.begun {
		r.phase = drained
		r.tellDrained()
	}
}

// fail completes the work request at head with f and stops the send queue: a reliable QP enters ERR, others SQE
// (V-QPS-13, V-QPS-15).
func (r *requester) fail(f *Failure) {
	r.revoke()
	w := r.oldest()
	if r.isCheck(w) {
		r.finish(w, f.Status, f)
		r.failCheck(f)
		return
	}
	to := SQE
	if r.reliable {
		to = Err
	}
	left := r.qp.leave(to, f)
	r.finish(w, f.Status, f)
	switch {
	case !left:
	case r.reliable:
		r.qp.failed(0)
	default:
		r.flush() // V-QPS-14
	}
}

// finish removes the work request at head, w, from the queue; the caller updates cur and begun. It pushes a
// completion if w requested one or failed (V-QP-10, V-SEND-12).
func (r *requester) finish(w *SendWQE, st Status, f *Failure) {
	if r.isCheck(w) {
		r.keep.out = false
		return
	}
	w.count, w.begun = 0, false // before the push, after which the slot may be reused
	if w.own {
		r.finishOwn(w, st, f)
		r.head++
		return
	}
	if st != Success || w.Flags&Signaled != 0 || r.qp.SigAll {
		e := &r.qp.Scratch.sent
		e.WRID, e.Status, e.Op = w.WRID, st, completionOps[w.Op&15]
		e.QPN, e.QP, e.Send, e.Slot = r.qp.Num, r.qp, true, r.head
		e.Solicited, e.Cause = st != Success, f
		e.ByteLen = 0
		switch {
		case st != Success:
		case w.Op == OpRead:
			e.ByteLen = w.Length
		case w.isAtomic():
			e.ByteLen = 8
		}
		if f != nil {
			e.VendorErr = uint32(f.Syndrome)
		}
		r.qp.SendCQ.Push(e)
		e.Cause, e.VendorErr = nil, 0
	}
	r.head++
}

var completionOps = [16]CQOp{
	OpWrite: CQWrite, OpWriteImm: CQWrite, OpSend: CQSend, OpSendImm: CQSend, OpSendInv: CQSend,
	OpRead: CQRead, OpCmpSwap: CQCompSwap, OpFetchAdd: CQFetchAdd, OpLocalInv: CQLocalInv, OpBindMW: CQBindMW,
	OpTSO: CQTSO, OpFlush: CQFlush, OpAtomicWrite: CQAtomicWrite,
}

// flush completes all posted requests with a flush error and stops sending (ERR, SQE).
func (r *requester) flush() {
	if r.sq == nil {
		return
	}
	r.revoke()
	if end := r.sq.Posted(); r.head != end {
		cause := r.qp.flushed()
		for r.head != end {
			r.finish(r.sq.At(r.head), WRFlushErr, cause)
		}
	}
	r.halt()
}

// reset empties the queue without completions (RESET).
func (r *requester) reset() {
	if r.sq == nil {
		return
	}
	r.revoke()
	for end := r.sq.Clear(); r.head != end; r.head++ {
		w := r.sq.At(r.head)
		r.dropOwn(w)
		w.requesterWQE = requesterWQE{}
	}
	r.halt()
	r.heard, r.rtt, r.stalled, r.win.least, r.srqn = false, rttEstimator{}, 0, 0, 0
}

// halt discards the state of sent packets. The next PSN follows the last one used.
func (r *requester) halt() {
	if r.phase == draining {
		r.tellDrained() // the program waits for this event (V-AE-16)
	}
	r.phase, r.bad = halted, nil
	if r.keep != nil {
		r.keep.out = false
	}
	r.cur, r.begun = r.head, r.head
	r.una, r.nxt = r.max, r.max
	r.win.clear()
	r.win.setPipe(0)
	r.rtt.sent, r.rtt.early, r.rtt.doubled, r.rtt.lossy = 0, 0, 0, false
	r.reads, r.retries, r.rnrTries, r.rnrUntil, r.rewoundByNAK, r.rewound = 0, 0, 0, 0, false, false
}

// drain stops new requests (RTS -> SQD). resume permits them (SQD -> RTS, SQE -> RTS).
func (r *requester) drain() {
	r.phase = draining
	r.runDeferred()
}

func (r *requester) resume() {
	if r.sq != nil { // an XRC_RECV QP sends nothing
		r.phase = running
	}
}

func (r *requester) tellDrained() {
	if r.qp.attr.SQDNotify {
		r.qp.Host.Raise(r.qp, EventSQDrained)
	}
}
