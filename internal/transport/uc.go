package transport

import (
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onUC handles a packet of an unreliable connection. There are no responses. A message with a missing or invalid
// packet is dropped as a whole, and its receive serves the next message. A first packet starts a new message,
// whatever its PSN (IBTA 9.8.2.2).
func (r *responder) onUC(p wire.Packet, info *wire.Info) {
	seq := p.BTH().PSN()
	gap := seq != r.epsn
	if gap {
		r.qp.Counters.OutOfSequence++
	}
	r.epsn = seq
	if info.Flags&wire.Start != 0 {
		if r.phase == inSend || r.phase == inWrite {
			r.drop()
		}
		r.phase = between
	} else if gap || r.checkOrder(info) != nil {
		r.skip(info)
		return
	}
	switch f := r.execute(p, info); f {
	case nil:
		r.established()
	case faultReceive: // an error of the local program
		r.refuse(f, seq)
	default:
		r.count(f)
		r.skip(info)
	}
}

// skip drops the current packet and the rest of its message.
func (r *responder) skip(info *wire.Info) {
	r.epsn = psn.Add(r.epsn, r.span)
	if r.phase != skipping {
		r.drop()
	}
	r.phase = skipping
	if info.Flags&wire.End != 0 {
		r.phase = between
	}
}

// drop counts a lost message and posts its receive again.
func (r *responder) drop() {
	r.qp.Counters.RecvDropped++
	if r.held {
		r.held = false
		r.rq.putBack(&r.recv.wqe)
	}
}
