package transport

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// responder answers the peer's requests. A packet passes these checks, in this order; the
// first that fails decides what becomes of it (IBTA volume 1, section 9.7.4):
//
//	PSN                        inSequence, outOfSequence, duplicate   this file, duplicate.go
//	place in its message       checkOrder                             this file
//	the QP permits it          execute                                this file
//	a receive, a resource      onSend, onWrite, onRead, onAtomic,     receive.go, write.go, read.go, atomic.go,
//	                           onFlush, onAtomicWrite                 placement.go
//	length                     the same
//	key, bounds, rights        the same
//
// What they return is a *fault, which refuse.go turns into a NAK and the QP's end. Answers
// wait in replies (reply.go) until transmit builds them, in the order of their PSNs.
type responder struct {
	qp *QP

	epsn  uint32 // the PSN expected next
	msn   uint32 // message sequence number: messages done, 24 bits
	fresh bool   // no packet was handled yet
	naked bool   // the gap before epsn was reported: packets behind it are dropped in silence
	lost  uint32 // the newest PSN so dropped
	again uint32 // the PSN with which a run of duplicates would go on; noRun if none is under way

	data  []byte     // the payload of the packet being handled
	epoch link.Epoch // of data
	span  int        // the PSNs that it has: more than one if it is a train

	rq  *RecvQueue      // where receives are taken; with XRC that of the SRQ which the message is for
	cq  CompletionQueue // where they complete
	pd  uint32          // the domain that the peer's keys must be in
	srq *XRCSRQ         // XRC: see xrc.go

	phase phase   // what kind of message is under way
	recv  receive // the receive that the message under way fills or will complete
	write write   // the RDMA WRITE under way
	replies

	denied denied
	cqe    CQE // the completion being made; kept here because an argument of an interface method escapes
}

// noRun is no PSN.
const noRun = 1 << 24

// phase is the kind of message of which the responder has seen the beginning but not the end.
type phase uint8

const (
	between phase = iota
	inSend
	inWrite
	skipping // UC: the rest of this message is dropped
)

func (r *responder) init(qp *QP) { r.qp, r.rq, r.cq, r.pd = qp, qp.RQ, qp.RecvCQ, qp.PD }

// start makes the responder ready to take packets from attr.RQPSN on (INIT -> RTR).
func (r *responder) start() {
	r.epsn, r.msn = r.qp.attr.RQPSN, 0
	r.fresh, r.naked, r.again = true, false, noRun
	r.phase = between
	r.replies.reset()
}

// reset forgets everything (any state -> RESET): posted receives, the one under way, replies.
func (r *responder) reset() {
	r.abandon()
	r.phase = between
	r.replies.reset()
	if q := r.rq; q != nil && !q.Shared() {
		q.clear()
	}
	r.forget()
}

// pending tells whether transmit would send something.
func (r *responder) pending() bool { return r.replies.pending() }

// onRequest handles a request that has passed the checks of OnPacket.
func (r *responder) onRequest(_ int64, p *link.RxPacket, info *wire.Info) {
	r.data, r.span, r.epoch = p.Payload(), 1, p.Epoch
	if p.Train {
		r.span = r.packets(uint32(len(r.data)))
	}
	switch r.qp.Type {
	case RC:
		r.onRC(wire.Packet(p.Data), info)
	case UC:
		r.onUC(wire.Packet(p.Data), info)
	case UD:
		r.onUD(p, info)
	case XRCRecv:
		r.onXRC(wire.Packet(p.Data), info)
	}
}

func (r *responder) onRC(p wire.Packet, info *wire.Info) {
	seq := p.BTH().PSN()
	switch d := psn.Diff(seq, r.epsn); {
	case d > 0:
		r.outOfSequence(seq)
	case d < 0 && d+r.span > 0:
		r.overlap()
	case d < 0:
		r.duplicate(p, info)
	default:
		r.inSequence(p, info)
	}
}

// outOfSequence drops a packet that came too early. The first one behind a gap is answered
// by a NAK, later ones by nothing until the expected packet is there (IBTA C9-106).
func (r *responder) outOfSequence(seq uint32) {
	r.qp.Counters.OutOfSequence++
	if !r.naked {
		r.naked, r.lost = true, seq
		r.nakSequence()
	} else if psn.Less(r.lost, seq) {
		r.lost = seq
	}
}

// inSequence executes the packet that was expected.
func (r *responder) inSequence(p wire.Packet, info *wire.Info) {
	seq, span := r.epsn, r.span
	r.again = noRun
	r.naked = r.tail.kind == tailSeqNAK // one that was not sent yet goes on asking for what is missing
	f := r.checkOrder(info)
	if f == nil {
		f = r.execute(p, info)
	} else {
		r.denied.err = r.disorder(info)
	}
	switch f {
	case nil:
	case notReady:
		r.nakNotReady()
		return
	case notYet, revoked:
		r.naked, r.lost = true, seq
		r.nakSequence()
		return
	default:
		r.refuse(f, seq)
		return
	}
	r.established()
	r.forgetNotReady()
	if p.BTH().AckReq() && info.Flags&(wire.IsRead|once) == 0 {
		r.ack(psn.Add(seq, span-1))
	}
}

// overlap drops a train that begins with what was handled before: the peer, who has gone back, shall go on with what was not.
func (r *responder) overlap() {
	r.qp.Counters.DuplicateRequest++
	r.naked, r.lost = true, r.epsn
	r.nakSequence()
}

// checkOrder tells whether a packet may follow the one before it (IBTA table 36).
func (r *responder) checkOrder(info *wire.Info) *fault {
	want := between
	if info.Flags&wire.Start == 0 {
		want = inWrite
		if info.Flags&wire.IsSend != 0 {
			want = inSend
		}
	}
	if r.phase != want {
		return faultOrder
	}
	return nil
}

// disorder says what came and what was expected when checkOrder refuses a packet.
func (r *responder) disorder(info *wire.Info) error {
	came := fmt.Sprintf("%s at PSN %#x", info.Name, r.epsn)
	switch r.phase {
	case inSend:
		return fmt.Errorf("%s inside a SEND that has brought %d bytes", came, r.recv.got)
	case inWrite:
		return fmt.Errorf("%s inside an RDMA WRITE that has brought %d of %d bytes", came, r.write.size-r.write.left, r.write.size)
	default:
		return fmt.Errorf("%s where a message must begin", came)
	}
}

// execute does what a packet in sequence and in order asks for, and steps over its PSNs.
func (r *responder) execute(p wire.Packet, info *wire.Info) *fault {
	access := r.qp.attr.Access
	switch {
	case info.Flags&wire.IsSend != 0:
		return r.onSend(p, info)
	case info.Flags&wire.IsWrite != 0 && access&accessWrite != 0:
		return r.onWrite(p, info)
	case info.Flags&wire.IsRead != 0 && access&accessRead != 0:
		return r.onRead(p)
	case info.Flags&wire.IsAtomic != 0 && access&accessAtomic != 0:
		return r.onAtomic(p, info)
	case info.Flags&wire.IsAtomicWrite != 0 && access&accessWrite != 0:
		return r.onAtomicWrite(p)
	case info.Flags&wire.IsFlush != 0 && access&accessFlush != 0:
		return r.onFlush(p)
	default:
		return faultOpcode
	}
}

// established raises COMM_EST when the first packet was handled in RTR (V-AE-15).
func (r *responder) established() {
	if r.fresh {
		r.fresh = false
		if r.qp.State() == RTR {
			r.qp.Host.Raise(r.qp, EventCommEst)
		}
	}
}

// checkPayload tells whether n bytes are what a packet of this place in its message must carry.
func (r *responder) checkPayload(info *wire.Info, n int) bool {
	mtu := r.qp.attr.MTU
	if r.span > 1 {
		return info.Flags&wire.End != 0 || n%mtu == 0
	}
	switch info.Flags & (wire.Start | wire.End) {
	case wire.Start | wire.End:
		return n <= mtu
	case wire.End:
		return 1 <= n && n <= mtu
	default:
		return n == mtu
	}
}

// step moves past n PSNs, and past a message when the packet ends one.
func (r *responder) step(n int, endsMessage bool) {
	r.epsn = psn.Add(r.epsn, n)
	if endsMessage {
		r.msn = psn.Next(r.msn)
	}
}
