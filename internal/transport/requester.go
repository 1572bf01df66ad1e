package transport

import (
	"cmp"
	"math/bits"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// requesterWQE is what the requester keeps of a work request under way.
type requesterWQE struct {
	first uint32 // PSN of the first packet
	count uint32 // PSNs of the message: its packets, or those of the answer to a READ; 0 = not computed yet
	cell  uint32 // READ: PSNs that one request packet asks for
	begun bool   // has PSNs
	own   bool   // the responder has put it there; see tagged.go
	sent  int64  // when it began
}

// sendPhase is what the requester may do with its queue.
type sendPhase uint8

const (
	halted   sendPhase = iota // RESET to RTR, SQE, ERR: nothing leaves
	running                   // RTS
	draining                  // SQD: what has begun is finished, nothing begins
	drained                   // SQD
)

// requester is the sending half of a QP. Work requests and PSNs move through it in order:
//
//	queue:  head <= cur <= begun <= stop()     PSNs (RC):  una <= nxt <= max
//
// Everything before head is complete, and everything before una acknowledged. cur is the work request that the
// packet nxt belongs to. What lies between cur and begun, or nxt and max, was sent
// before and is sent again: a retry goes back to una, always.
type requester struct {
	qp *QP
	sq *SendQueue

	reliable         bool // waits for acknowledgements: RC, XRC
	head, cur, begun uint32
	una, nxt, max    uint32
	life             uint32 // how often PSNs began anew
	phase            sendPhase
	shift            uint8 // log2 of the MTU
	mtu              uint32
	from             cursor   // where the packet nxt takes its data
	to               cursor   // where the READ response una puts its data
	pieces           [][]byte // of one packet, found by gather
	win              window
	hurry            hurry
	quietPackets     int // sent since the last one that asked for an acknowledgement
	quietBytes       int
	referring        bool // packets by reference were sent that the peer has not acknowledged
	took             int  // PSNs of the packet sent last, of a SEND or WRITE: what it takes of a turn

	reads   int    // requests between una and nxt that wait for an answer
	restart uint32 // PSN at which the latest READ request began that was not for a whole cell

	// Retrying, see retry.go.
	timer    int64 // when the wait for an acknowledgement began
	rnrUntil int64 // the peer asked for quiet until then; 0 = it did not
	retries  int
	rnrTries int
	nakked   bool   // went back to una because the peer said so; the same una does not make it go back again
	again    bool   // went back to una for any reason: answers to what follows it may be those from before
	heard    bool   // something came back from the peer, ever
	why      string // it went back to una last time

	rndvs []rndv   // by slot; nil until the first
	bad   *Failure // why the work request badAt will fail once those before it are complete
	badAt uint32
	cqe   CQE     // scratch: a CQE on the stack would escape
	value [8]byte // scratch: what an atomic returned
}

func (r *requester) init(qp *QP) {
	r.qp, r.sq, r.reliable = qp, qp.SQ, qp.Type.reliable()
	r.win.limit, r.win.size = DefaultWindow, DefaultWindow
}

// start lets the requester send (RTR -> RTS), from PSN attr.SQPSN on.
func (r *requester) start() {
	qp := r.qp
	r.mtu = uint32(qp.attr.MTU)
	if qp.Type == UD {
		r.mtu = uint32(cmp.Or(qp.PortMTU, wire.MaxPayload))
	}
	r.shift = uint8(bits.Len32(r.mtu) - 1)
	r.una, r.nxt, r.max = qp.attr.SQPSN, qp.attr.SQPSN, qp.attr.SQPSN
	r.restart = r.una
	r.life++
	r.win.size = r.win.limit
	r.resume()
}

// stop is the index of the first work request that may not be sent now.
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

// pending tells whether the next packet may leave now.
func (r *requester) pending() bool {
	if r.cur == r.stop() || r.rnrUntil != 0 {
		return false
	}
	w := r.sq.At(r.cur)
	if w.isLocal() {
		return r.cur == r.head
	}
	return !r.reliable || r.admits(w)
}

// admits tells whether fence, initiator depth and window let the next packet of w leave.
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
		if r.reads > 0 && r.reads >= r.qp.attr.MaxRdAtomic {
			return false
		}
		n = w.cellEnd(off) - off
	}
	if (r.nxt-r.una)&psn.Mask+n > maxSpan {
		return false
	}
	// What has left without asking for an acknowledgement must be followed by something that does.
	return r.win.admits(r.cost(w, off, off+n)) || r.quietPackets > 0
}

// measure computes how many PSNs w takes.
func (r *requester) measure(w *SendWQE) {
	w.count, w.cell = 1, 1
	if w.isAtomic() || w.isPlacement() || w.Length > maxMessage {
		return
	}
	w.count = max(1, (w.Length+r.mtu-1)>>r.shift)
	if w.Op == OpRead {
		// A fraction of the window for each request that may be outstanding, so that the window is used but not overrun.
		share := r.win.limit / max(1, min(4, r.qp.attr.MaxRdAtomic))
		w.cell = min(w.count, uint32(max(1, min(share/(int(r.mtu)+packetCost), maxSpan/4))))
	}
}

// cost is what the PSNs from a to b of w count for in the window.
func (r *requester) cost(w *SendWQE, a, b uint32) int {
	return int(r.bytes(w, b)-r.bytes(w, a)) + int(b-a)*packetCost
}

// bytes is how many bytes of w's message come before its PSN number n.
func (r *requester) bytes(w *SendWQE, n uint32) uint32 {
	return uint32(min(uint64(n)<<r.shift, uint64(w.Length)))
}

// transmit appends at most budget packets to tx and tells whether more could be sent at once.
func (r *requester) transmit(now int64, tx *link.TxBatch, budget int) (more bool) {
	for ; r.pending(); budget -= r.took {
		r.took = 1
		if budget <= 0 {
			return true
		}
		w := r.sq.At(r.cur)
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
			// A full batch, or w failed.
			return r.pending()
		}
	}
	return false
}

// begin gives w its PSNs, if it is fit to be sent.
func (r *requester) begin(now int64, w *SendWQE) bool {
	if w.count == 0 {
		r.measure(w)
	}
	if st, why := r.unfit(w); st != Success {
		r.reject(now, w, st, why)
		return false
	}
	w.first, w.sent, w.begun = r.nxt, now, true
	r.begun++
	return true
}

// unfit finds what is wrong with w itself, whoever the peer is.
func (r *requester) unfit(w *SendWQE) (Status, string) {
	qp := r.qp
	switch {
	case !qp.Type.does(w.Op):
		return LocQPOpErr, "this type of QP does not do the operation"
	case w.waitsForAnswer() && qp.attr.MaxRdAtomic == 0:
		// rxe waits for ever here. A request that can never be sent is an error of the QP's set-up.
		return LocQPOpErr, "READ, atomics, FLUSH and ATOMIC WRITE need max_rd_atomic above 0"
	case w.isAtomic() && w.Length < 8:
		return LocLenErr, "an atomic needs 8 bytes for the value it returns"
	case w.Op == OpAtomicWrite && w.Length != wire.AtomicWriteLen:
		return LocLenErr, "an ATOMIC WRITE has 8 bytes"
	case w.Length > maxMessage:
		return LocLenErr, "the message is longer than 2^31 bytes"
	case qp.Type == UD && w.Length > r.mtu:
		return LocLenErr, "a UD message must fit one packet"
	case w.waitsForAnswer() && !w.isPlacement():
		return r.checkAll(w, mr.LocalWrite)
	case w.count > 1 && w.Flags&Inline == 0:
		return r.checkAll(w, 0)
	}
	return Success, ""
}

// does tells whether a QP of the type takes the operation (V-SEND-07). The verbs let UC have SEND_WITH_INV, but there is
// no such packet (IBTA table 35).
func (t Type) does(op Op) bool {
	switch op {
	case OpSend, OpSendImm:
		return true
	case OpWrite, OpWriteImm, OpLocalInv, OpBindMW:
		return t != UD
	case OpSendInv, OpRead, OpCmpSwap, OpFetchAdd, OpFlush, OpAtomicWrite:
		return t.reliable()
	}
	return false
}

// reject lets w, the work request at cur, fail as soon as those before it are complete.
func (r *requester) reject(now int64, w *SendWQE, st Status, why string) {
	r.bad, r.badAt = r.failure(now, w, st, why), r.cur
	r.settle()
}

// settle does what had to wait for earlier work requests to be complete.
func (r *requester) settle() {
	if r.bad != nil && r.head == r.badAt {
		r.fail(r.bad)
	}
	if r.phase == draining && r.head == r.begun {
		r.phase = drained
		r.tellDrained()
	}
}

// fail completes the work request at head with f and stops the send queue: the QP goes to ERR or, if it
// is not a reliable one, to SQE (V-QPS-13, V-QPS-15).
func (r *requester) fail(f *Failure) {
	r.revoke()
	r.finish(r.sq.At(r.head), f.Status, f)
	if r.reliable {
		r.qp.Fail(f, 0)
	} else {
		r.qp.failSend(f)
	}
}

// finish takes the work request at head, which is w, out of the queue; the caller sees to cur and begun.
// It leaves a completion if w asked for one or failed (V-QP-10, V-SEND-12).
func (r *requester) finish(w *SendWQE, st Status, f *Failure) {
	w.count, w.begun = 0, false // now: once the completion is pushed the slot may be filled again
	if w.own {
		r.finishOwn(w, st, f)
		r.head++
		return
	}
	if st != Success || w.Flags&Signaled != 0 || r.qp.SigAll {
		e := &r.cqe
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
	OpFlush: CQFlush, OpAtomicWrite: CQAtomicWrite,
}

// flush completes everything posted as flushed and lets nothing more out (ERR, SQE).
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
	for end := r.sq.clear(); r.head != end; r.head++ {
		w := r.sq.At(r.head)
		r.dropOwn(w)
		w.requesterWQE = requesterWQE{}
	}
	r.halt()
	r.heard = false
}

// halt forgets what is under way. PSNs go on after the last one used.
func (r *requester) halt() {
	if r.phase == draining {
		r.tellDrained() // nobody shall wait for an event that does not come (V-AE-16)
	}
	r.phase, r.bad = halted, nil
	r.cur, r.begun = r.head, r.head
	r.una, r.nxt = r.max, r.max
	r.win.clear()
	r.hurry.sent, r.hurry.tries = 0, 0
	r.reads, r.retries, r.rnrTries, r.rnrUntil, r.nakked, r.again = 0, 0, 0, 0, false, false
}

// drain holds back what has not begun (RTS -> SQD), resume lets it go (SQD -> RTS, SQE -> RTS).
func (r *requester) drain() {
	r.phase = draining
	r.settle()
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
