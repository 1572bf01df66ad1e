package transport

import (
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// duplicate handles a request whose PSN was executed before: the requester did not receive the response. A SEND or
// WRITE is acknowledged again and otherwise ignored, a READ is executed again, the response to an atomic, a FLUSH or
// an ATOMIC WRITE is repeated (IBTA C9-105, A19).
//
// A requester that resends its window produces a run of duplicates. The first duplicate of a run is acknowledged, and
// each one that requests an acknowledgement. An ACK per duplicate would double the load of a requester that is slow
// because it is overloaded: soft-RoCE then processed none of them for seconds and kept resending.
func (r *responder) duplicate(p wire.Packet, info *wire.Info) {
	r.qp.Counters.DuplicateRequest++
	seq := p.BTH().PSN()
	first := seq != r.dupNext
	r.dupNext = psn.Add(seq, r.span)
	switch {
	case info.Flags&(wire.IsSend|wire.IsWrite) != 0:
		if first || p.BTH().AckReq() {
			r.ackAgain(seq)
		}
	case info.Flags&wire.IsRead != 0 && r.qp.attr.Access&accessRead != 0: // it may have been taken away since
		r.replayRead(p)
	case info.Flags&atMostOnce != 0:
		r.replayAtMostOnce(p)
	default:
		r.qp.Counters.BadDuplicate++
	}
}

// ackAgain acknowledges everything up to the newest PSN, in answer to a duplicate SEND or WRITE at seq. If a READ or
// atomic was executed after seq, the ACK stops before it: a requester treats an ACK of a READ's PSN without data as a
// lost response. If that response is still queued, it acknowledges seq as well and no ACK is needed.
func (r *responder) ackAgain(seq uint32) {
	upTo := psn.Add(r.epsn, -1)
	for i := r.oldest(); i != r.head; i++ {
		res := r.at(i)
		if !psn.Less(seq, res.last) {
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
