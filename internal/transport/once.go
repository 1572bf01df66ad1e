package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// once are the flags of requests of one packet that are executed once and have an answer of their own: atomic operations, FLUSH and
// ATOMIC WRITE. Each takes a responder resource, which keeps what a duplicate is answered with.
const once = wire.IsAtomic | wire.IsFlush | wire.IsAtomicWrite

// done has an operation answered that was executed. was is what the memory held, for an atomic.
func (r *responder) done(res *resource, p wire.Packet, was uint64) {
	*res = resource{kind: resOnce, op: p.Opcode(), first: r.epsn, last: r.epsn, next: r.epsn, was: was}
	r.step(1, true)
	r.queue(res)
}

// replayOnce answers a duplicate of what was executed and must not be executed again.
func (r *responder) replayOnce(p wire.Packet) {
	i, ok := r.find(resOnce, p.BTH().PSN())
	if !ok || r.at(i).op != p.Opcode() {
		r.qp.Counters.BadDuplicate++
		return
	}
	r.requeue(i)
}

// sendOnce appends the answer and tells whether there was room for it: an atomic acknowledge, or a READ response without data.
func (r *responder) sendOnce(res *resource, tx *link.TxBatch) bool {
	const head = wire.BTHLen + wire.AETHLen
	op, n := wire.ReadRespOnly, head
	if res.op.Info().Flags&wire.IsAtomic != 0 {
		op, n = wire.AtomicAck, head+wire.AtomicAckLen
	}
	b := tx.Alloc(r.qp.path, r.qp.attr.DestQPN, n)
	if b == nil {
		return false
	}
	r.putBTH(b, op, 0, res.first)
	wire.AETH(b[wire.BTHLen:]).Put(wire.SynAck, res.msn)
	if op == wire.AtomicAck {
		binary.BigEndian.PutUint64(b[head:], res.was)
	}
	res.pending, res.answered = false, true
	return true
}
