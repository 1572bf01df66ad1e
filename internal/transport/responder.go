package transport

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// responder answers the peer's requests. A packet passes these checks, in this order; the first failed check
// determines the reply (IBTA volume 1, section 9.7.4):
//
//	PSN                        inSequence, outOfSequence, duplicate   this file, duplicate.go
//	position in its message    checkOrder                             this file
//	the QP permits it          execute                                this file
//	a receive, a resource      onSend, onWrite, onRead, onAtomic,     receive.go, write.go, read.go, atomic.go,
//	                           onFlush, onAtomicWrite                 placement.go
//	length                     the same
//	key, bounds, rights        the same
//
// A failed check returns a *fault, which refuse.go turns into a NAK and the failure of the QP. Responses wait in
// replies (reply.go) until transmit builds them, in PSN order.
type responder struct {
	// Each message uses the fields before data. A request that the QP sends uses them up to replies.ring, to see whether
	// a reply is to be sent too.
	pd          uint32 // protection domain of the peer's keys
	epsn        uint32 // expected PSN
	msn         uint32 // message sequence number: messages completed, 24 bits
	cnpDue      bool   // a congestion notification is to be sent; see congestion.go
	phase       phase  // kind of the current message
	fresh       bool   // no packet was handled yet
	gapReported bool   // a NAK for epsn was queued: later packets are dropped without a reply
	replies
	qp      *QP
	rq      *RecvQueue      // queue from which receives are taken; with XRC that of the message's SRQ
	cq      CompletionQueue // queue in which they complete
	dupNext uint32          // PSN that would continue a run of duplicates; noRun if there is none
	held    bool            // recv was taken, and is not completed yet
	keeps   bool            // the requester has a keep-alive

	data    payload    // of the current packet
	epoch   link.Epoch // of data
	steered *Steered   // of the current packet, if a flow rule delivers it
	span    int        // number of PSNs of the current packet; more than one if it is a train

	srq   *XRCSRQ // XRC: see xrc.go
	away  bool    // another process has the turn: see turn.go
	since uint32  // the PSN at which it got it

	grh       [wire.GRHLen]byte // of the current datagram
	pkeyIndex uint16            // of the current datagram for QP 1
	tmh       [wire.TMHLen]byte // of the current message, if its payload is away

	denied denied

	lost  uint32  // newest PSN dropped because of gapReported
	lent  bool    // READ responses were sent by reference
	write write   // current RDMA WRITE
	recv  receive // receive of the current message
}

// noRun is not a valid PSN.
const noRun = 1 << 24

// phase is the kind of the message whose first packet was received and whose last was not.
type phase uint8

const (
	between phase = iota
	inSend
	inWrite
	skipping // UC: the rest of this message is dropped
)

func (r *responder) init(qp *QP) {
	r.qp, r.rq, r.cq, r.pd = qp, qp.RQ, qp.RecvCQ, qp.PD
	r.recv.wqe.SGEs = r.recv.few[:0]
}

// start prepares for packets from attr.RQPSN on (INIT -> RTR).
func (r *responder) start() {
	r.epsn, r.msn = r.qp.attr.RQPSN, 0
	r.fresh, r.gapReported, r.dupNext = true, false, noRun
	r.phase = between
	r.away = r.qp.Guest
	r.replies.reset()
}

// reset drops posted receives, the current receive and replies (any state -> RESET).
func (r *responder) reset() {
	r.revoke()
	r.abandon()
	r.phase = between
	r.replies.reset()
	if q := r.rq; q != nil && !q.Shared() {
		q.Clear()
	}
	r.forget()
	r.endGuests(false)
}

// pending reports whether transmit has something to send.
func (r *responder) pending() bool { return r.replies.pending() }

// onRequest handles a request that has passed the checks of OnPacket.
func (r *responder) onRequest(p *link.RxPacket, info *wire.Info) {
	r.data, r.span, r.epoch = payload{p.Payload(), p.Away}, 1, p.Epoch
	if p.Train {
		r.span = r.packets(uint32(r.data.len()))
	}
	switch r.qp.Type {
	case RC:
		r.onRC(wire.Packet(p.Data), info)
	case UC:
		r.onUC(wire.Packet(p.Data), info)
	case UD:
		r.onUD(p, info)
	case XRCRecv:
		r.onXRC(p, info)
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

// outOfSequence drops a packet that arrived before the expected one. The first packet after a gap is answered by a
// NAK, later ones not at all until the expected packet arrives (IBTA C9-106).
func (r *responder) outOfSequence(seq uint32) {
	r.qp.Counters.OutOfSequence++
	if !r.gapReported {
		r.gapReported, r.lost = true, seq
		r.nakSequence()
	} else if psn.Less(r.lost, seq) {
		r.lost = seq
	}
}

// inSequence executes the expected packet.
func (r *responder) inSequence(p wire.Packet, info *wire.Info) {
	seq, span := r.epsn, r.span
	r.dupNext = noRun
	r.gapReported = r.tail.kind == tailSeqNAK // an unsent NAK stays in force
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
		r.gapReported, r.lost = true, seq
		r.nakSequence()
		return
	default:
		r.refuse(f, seq)
		return
	}
	r.established()
	r.forgetNotReady()
	if p.BTH().AckReq() && info.Flags&(wire.IsRead|atMostOnce) == 0 {
		r.ack(psn.Add(seq, span-1))
	}
}

// overlap drops a train whose first packets are duplicates. The NAK makes the peer continue with the expected packet.
func (r *responder) overlap() {
	r.qp.Counters.DuplicateRequest++
	r.gapReported, r.lost = true, r.epsn
	r.nakSequence()
}

// checkOrder checks that a packet may follow the previous one (IBTA table 36).
func (r *responder) checkOrder(info *wire.Info) *fault {
	want := between
	if info.Flags&wire.Start == 0 {
		want = inWrite
		if info.Flags&wire.IsSend != 0 {
			want = inSend
		}
	}
	const first = wire.IsSend | wire.Start
	if r.phase != want || r.waits() && info.Flags&first != first {
		return faultOrder
	}
	return nil
}

// disorder describes a packet that checkOrder refused.
func (r *responder) disorder(info *wire.Info) error {
	came := fmt.Sprintf("%s at PSN %#x", info.Name, r.epsn)
	if r.waits() {
		return fmt.Errorf("%s instead of a SEND whose payload the peer had taken back", came)
	}
	switch r.phase {
	case inSend:
		return fmt.Errorf("%s inside a SEND that has brought %d bytes", came, r.recv.got)
	case inWrite:
		return fmt.Errorf("%s inside an RDMA WRITE that has brought %d of %d bytes", came, r.write.size-r.write.left,
			r.write.size)
	default:
		return fmt.Errorf("%s where a message must begin", came)
	}
}

// execute performs the operation of an expected packet and advances past its PSNs.
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
		return r.onAtomic(p)
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

// checkPayload reports whether n is a valid payload length for the packet's position in its message.
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

// step advances past n PSNs and, if endsMessage, past a message.
func (r *responder) step(n int, endsMessage bool) {
	was := r.epsn
	r.epsn = psn.Add(was, n)
	if (was^r.epsn)/expireEvery != 0 {
		r.expire(r.epsn)
		if relay := r.qp.Relay; relay != nil {
			relay.Aged(r.epsn)
		}
	}
	if endsMessage {
		r.msn = psn.Next(r.msn)
	}
}
