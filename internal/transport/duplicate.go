package transport

import (
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// duplicate handles a request whose PSN has been handled before: the peer did not get the
// answer. A SEND or WRITE is acknowledged again and otherwise ignored, a READ executed again, the
// answer to an atomic, a FLUSH or an ATOMIC WRITE repeated (IBTA C9-105, A19).
//
// Of a run of duplicates, with which a peer sends a whole window again, the first is acknowledged and those that ask
// for it, as if they had come for the first time. An answer to each would double the work of a peer that is late because it is
// overloaded: Linux's soft-RoCE then took none of them for seconds, and went on sending.
func (r *responder) duplicate(p wire.Packet, info *wire.Info) {
	r.qp.Counters.DuplicateRequest++
	seq := p.BTH().PSN()
	first := seq != r.again
	r.again = psn.Add(seq, r.span)
	switch {
	case info.Flags&(wire.IsSend|wire.IsWrite) != 0:
		if first || p.BTH().AckReq() {
			r.ackAgain(seq)
		}
	case info.Flags&wire.IsRead != 0:
		r.replayRead(p)
	case info.Flags&once != 0:
		r.replayOnce(p)
	default:
		r.qp.Counters.BadDuplicate++
	}
}

// ackAgain acknowledges, for a duplicate SEND or WRITE at seq, everything up to the newest PSN. Where a
// READ or atomic came after seq, it stops in front of it: the peer takes an acknowledgement of a READ's
// PSN without its data as a loss. While such an answer still waits to be sent it says all that there is to say.
func (r *responder) ackAgain(seq uint32) {
	upTo := psn.Add(r.epsn, -1)
	for i := r.oldest(); i != r.head; i++ {
		res := r.at(i)
		if !psn.Less(seq, res.first) {
			continue
		}
		if res.pending {
			return
		}
		upTo = psn.Add(res.first, -1)
		break
	}
	r.ack(upTo)
}
