package iwarp

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// sender is the sending half of a QP. Work requests start in order and complete in order:
//
//	completed, polled or not | head: started | cur: posted | SQ.Posted()
type sender struct {
	head, cur uint32
	entries   []entry       // by slot
	waiting   []outstanding // oldest first
	next      [iwarp.Queues]uint32
	begun     bool // the first message of a peer-to-peer connection was built
	turn      bool // the next message is a response, if there is one
	msg       outgoing
	stream
	dying bool   // a Terminate ends the stream
	nudge bool   // a WRITE of no bytes is to be sent
	mark  uint64 // the bytes that the stream had taken when Nudge was called, and its WRITE
	last  bool   // LAST_WQE_REACHED was raised

	// The work request that has failed: it completes with its status once those before it are complete.
	stuck    bool // nothing starts any more
	failed   bool
	failSlot uint32
	failWith *transport.Failure
}

// entry is the state of a work request that was started, and empty for other slots.
type entry struct {
	wait  bool   // it completes with a response of the peer
	done  bool   // the response has come, or there is nothing to wait for
	built bool   // all of its bytes are built
	end   uint64 // their end in the stream
}

func (q *QP) initSender() {
	q.entries = make([]entry, q.SQ.Cap())
	for i := range q.next {
		q.next[i] = 1
	}
	q.head = q.SQ.Posted()
	q.cur = q.head
	q.begun = q.par.RTR == 0 || !q.par.Initiator
}

func (q *QP) entry(slot uint32) *entry { return &q.entries[int(slot)%len(q.entries)] }

// number returns the MSN of the next message of a queue.
func (q *QP) number(queue uint32) uint32 {
	n := q.next[queue]
	q.next[queue]++
	return n
}

// begin begins the next message, and reports whether there is one. Responses and work requests take turns. A responder
// sends nothing before it has received a segment, unless Release was called.
func (q *QP) begin() bool {
	if !q.begun {
		q.beginRTR()
		return true
	}
	if !q.par.Initiator && !q.heard && !q.released {
		q.locals()
		return false
	}
	if q.nudge {
		q.nudge = false
		q.open(outgoing{kind: plain, op: iwarp.Write, stag: ownSTag})
		return true
	}
	if q.beginSignal() {
		return true
	}
	q.turn = !q.turn
	if q.turn && len(q.answers) > 0 {
		q.beginAnswer()
		return true
	}
	if q.beginSend() {
		return true
	}
	if q.state == transport.RTS && len(q.answers) > 0 {
		q.beginAnswer()
		return true
	}
	return false
}

// Nudge makes an initiator send a WRITE of no bytes, which changes nothing, if it has sent something, but nothing since
// the last call. It reports whether it does. A kernel with siw that accepts a connection may overlook data that arrive
// just after its reply, until more arrive. Data of the peer do not show that it has seen them: a stream of rsocket
// begins with a message in each direction.
func (q *QP) Nudge() bool {
	if q.state != transport.RTS || !q.par.Initiator || q.closing || !q.idle() || q.taken != q.mark {
		q.mark = q.taken
		return false
	}
	if q.taken == 0 {
		return false
	}
	q.nudge = true
	q.mark += uint64(iwarp.FPDULen(iwarp.TaggedLen))
	return true
}

// Release lets a responder send first in a connection without peer-to-peer mode, if the initiator has sent nothing for
// so long that it must be waiting. It reports whether that changes anything. With peer-to-peer mode the initiator has a
// message to send.
func (q *QP) Release() bool {
	if q.state != transport.RTS || q.par.Initiator || q.par.RTR != 0 || q.heard {
		return false
	}
	q.released = true
	return true
}

// beginRTR begins the message without data that opens a peer-to-peer connection.
func (q *QP) beginRTR() {
	q.begun = true
	m := outgoing{kind: plain, op: iwarp.Send, stag: ownSTag}
	switch q.par.RTR {
	case iwarp.RTRWrite:
		m.op = iwarp.Write
	case iwarp.RTRRead:
		m.op = iwarp.ReadRequest
		d := iwarp.Read{SinkSTag: ownSTag, SrcSTag: ownSTag}
		d.Put(q.control(&m, iwarp.ReadRequestLen))
		m.wait = outstanding{own: true, stag: ownSTag}
	}
	q.open(m)
}

// beginSend starts the next work request that needs the stream, and reports whether there is one.
func (q *QP) beginSend() bool {
	w := q.locals()
	if w == nil {
		return false
	}
	switch w.Op {
	case transport.OpRead, transport.OpCmpSwap, transport.OpFetchAdd:
		if q.par.ORD > 0 && len(q.waiting) >= q.par.ORD {
			return false
		}
	}
	m, st, why := q.compose(w)
	if st != transport.Success {
		q.reject(st, why)
		return false
	}
	m.slot = q.cur
	*q.entry(q.cur) = entry{wait: m.kind == plain && m.op != iwarp.Send && m.small > 0}
	q.cur++
	q.open(m)
	return true
}

// locals executes the work requests that come next and need no stream, and returns the first one that needs it; nil if
// there is none, or one before it must wait. A responder may execute them before it may send.
func (q *QP) locals() *transport.SendWQE {
	for q.state == transport.RTS && !q.stuck && q.cur != q.SQ.Posted() {
		w := q.SQ.At(q.cur)
		if w.Flags&transport.Fence != 0 && len(q.waiting) > 0 {
			return nil
		}
		if w.Op != transport.OpLocalInv && w.Op != transport.OpBindMW {
			return w
		}
		if !q.local(w) {
			return nil
		}
	}
	return nil
}

// local executes a work request that needs no stream, once all before it are complete, and reports whether it has.
func (q *QP) local(w *transport.SendWQE) bool {
	e := q.entry(q.cur)
	if q.head != q.cur {
		return false
	}
	if !e.built {
		st, err := transport.LocQPOpErr, error(nil)
		if w.Op == transport.OpBindMW {
			st, err = transport.MWBindErr, q.Regions.Bind(&w.Bind, q.PD, q.ID)
		} else {
			err = q.Regions.Invalidate(w.Imm, q.PD, q.ID)
		}
		if err != nil {
			q.reject(st, err.Error())
			return false
		}
		e.built = true
	}
	if w.Op == transport.OpBindMW && !w.Bind.Window.Drained() {
		return false
	}
	*e = entry{done: true}
	q.cur++
	q.complete()
	return true
}

// compose makes the message of a work request.
func (q *QP) compose(w *transport.SendWQE) (m outgoing, st transport.Status, why string) {
	m = outgoing{kind: data, left: w.Length, inv: w.Imm, stag: w.RKey, to: w.RemoteAddr}
	need := mr.Access(0)
	switch w.Op {
	case transport.OpSend, transport.OpSendInv:
		m.op = opcodeOf(w)
		if w.Op == transport.OpSend {
			m.inv = 0
		}
	case transport.OpWrite, transport.OpWriteImm:
		m.op, m.inv = iwarp.Write, 0
	case transport.OpRead, transport.OpCmpSwap, transport.OpFetchAdd:
		need = mr.LocalWrite
		if q.par.ORD == 0 {
			return m, transport.LocQPOpErr, "the connection was made without READs: initiator depth 0"
		}
		if len(w.SGEs) > 1 {
			return m, transport.LocQPOpErr, fmt.Sprintf("%d SGEs: a READ of iWARP has 1", len(w.SGEs))
		}
	default:
		return m, transport.LocQPOpErr, "iWARP does not have this operation"
	}
	for i := range w.SGEs {
		s := &w.SGEs[i]
		if s.Length == 0 {
			continue
		}
		if _, err := q.Regions.Check(s.LKey, s.Addr, uint64(s.Length), q.PD, need); err != nil {
			return m, transport.LocProtErr, fmt.Sprintf("SGE %d: %v", i, err)
		}
	}
	if need != 0 {
		q.request(&m, w)
	}
	return m, transport.Success, ""
}

func opcodeOf(w *transport.SendWQE) iwarp.Opcode {
	se := w.Flags&transport.Solicited != 0
	switch {
	case w.Op == transport.OpSendInv && se:
		return iwarp.SendSEInv
	case w.Op == transport.OpSendInv:
		return iwarp.SendInv
	case w.Op == transport.OpWriteImm && se:
		return iwarp.ImmediateSE
	case w.Op == transport.OpWriteImm:
		return iwarp.Immediate
	case se:
		return iwarp.SendSE
	}
	return iwarp.Send
}

// request makes m the request of a READ or an atomic. The key of the buffer names it to the peer, too.
func (q *QP) request(m *outgoing, w *transport.SendWQE) {
	o := outstanding{slot: q.cur, size: w.Length}
	if len(w.SGEs) > 0 {
		o.stag, o.to = w.SGEs[0].LKey, w.SGEs[0].Addr
	}
	m.kind, m.inv = plain, 0
	o.msn = q.next[iwarp.QueueRequest]
	switch w.Op {
	case transport.OpRead:
		m.op = iwarp.ReadRequest
		d := iwarp.Read{SinkSTag: o.stag, SinkTO: o.to, Size: w.Length, SrcSTag: w.RKey, SrcTO: w.RemoteAddr}
		d.Put(q.control(m, iwarp.ReadRequestLen))
	default:
		m.op, o.atomic = iwarp.AtomicRequest, true
		a := iwarp.Atomic{Op: iwarp.FetchAdd, ID: o.msn, STag: w.RKey, TO: w.RemoteAddr, Data: w.CompareAdd}
		if w.Op == transport.OpCmpSwap {
			a.Op, a.Data, a.Compare = iwarp.CmpSwap, w.Swap, w.CompareAdd
			a.Mask, a.CompareMask = ^uint64(0), ^uint64(0)
		}
		a.Put(q.control(m, iwarp.AtomicRequestLen))
	}
	m.wait = o
}

// beginAnswer begins the oldest response.
func (q *QP) beginAnswer() {
	a := &q.answers[0]
	if a.atomic {
		m := outgoing{kind: plain, op: iwarp.AtomicResponse, answer: true}
		iwarp.PutAtomicResponse(q.control(&m, iwarp.AtomicResponseLen), a.id, a.was)
		q.open(m)
		return
	}
	q.open(outgoing{kind: response, op: iwarp.ReadResponse, answer: true, left: a.read.Size, stag: a.read.SinkSTag,
		to: a.read.SinkTO})
}

// reject makes the work request at cur fail, once those before it are complete.
func (q *QP) reject(st transport.Status, why string) {
	q.fails(q.cur, st, why)
	q.stuck = true
	q.complete()
}

// fails notes the status of the work request that is at fault. The oldest one counts: a younger one may have been
// rejected while this one waited for its response.
func (q *QP) fails(slot uint32, st transport.Status, why string) {
	if q.failed && int32(slot-q.failSlot) >= 0 {
		return
	}
	f := &transport.Failure{Status: st, QPN: q.Num, Reason: why}
	if q.first == nil || q.first == q.failWith {
		q.first = f
	}
	q.failed, q.stuck, q.failSlot, q.failWith = true, false, slot, f
}

// complete completes the work requests that are done, oldest first.
func (q *QP) complete() {
	for q.head != q.cur {
		e := q.entry(q.head)
		if !e.done && (e.wait || !e.built || e.end > q.taken) {
			break
		}
		*e = entry{} // local expects the entry of a slot that was used before to be empty
		q.report(q.head, transport.Success, nil)
		q.head++
	}
	if q.stuck && q.head == q.failSlot {
		q.stuck = false
		q.term, q.dying = iwarp.Terminate{Code: iwarp.LocalCatastrophic}, true
		q.end(q.failWith.Status, q.failWith.Reason)
	}
}

// report adds the completion of a work request.
func (q *QP) report(slot uint32, st transport.Status, cause *transport.Failure) {
	w := q.SQ.At(slot)
	if st == transport.Success && !q.SigAll && w.Flags&transport.Signaled == 0 {
		return
	}
	q.SendCQ.Push(&transport.CQE{WRID: w.WRID, Status: st, Op: completionOf(w.Op), ByteLen: w.Length, QPN: q.Num,
		Send: true, Slot: slot, SQ: q.SQ, Cause: cause})
}

func completionOf(o transport.Op) transport.CQOp {
	switch o {
	case transport.OpWrite, transport.OpWriteImm:
		return transport.CQWrite
	case transport.OpRead:
		return transport.CQRead
	case transport.OpCmpSwap:
		return transport.CQCompSwap
	case transport.OpFetchAdd:
		return transport.CQFetchAdd
	case transport.OpBindMW:
		return transport.CQBindMW
	case transport.OpLocalInv:
		return transport.CQLocalInv
	}
	return transport.CQSend
}

// flushSends completes every work request that is left with an error.
func (q *QP) flushSends(cause *transport.Failure) {
	for ; q.head != q.SQ.Posted(); q.head++ {
		if q.failed && q.head == q.failSlot {
			q.report(q.head, q.failWith.Status, q.failWith)
			continue
		}
		q.report(q.head, transport.WRFlushErr, cause)
	}
	q.cur = q.head
	q.waiting, q.answers, q.msg = nil, nil, outgoing{}
}
