package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// atMostOnce is the set of flags of single-packet requests that are executed at most once and have a response of
// their own: atomic operations, FLUSH and ATOMIC WRITE. Each takes a responder resource, which holds the response for
// duplicates.
const atMostOnce = wire.IsAtomic | wire.IsFlush | wire.IsAtomicWrite

// done queues the response of an executed operation. was is the original memory content, for an atomic.
func (r *responder) done(res *resource, p wire.Packet, was uint64) {
	*res = resource{kind: resAtMostOnce, op: p.Opcode(), first: r.epsn, last: r.epsn, next: r.epsn, was: was}
	r.step(1, true)
	r.queue(res)
}

// replayAtMostOnce repeats the response of a request that was executed and must not be executed again.
func (r *responder) replayAtMostOnce(p wire.Packet) {
	i, ok := r.find(resAtMostOnce, p.BTH().PSN())
	if !ok || r.at(i).op != p.Opcode() {
		r.qp.Counters.BadDuplicate++
		return
	}
	r.requeue(i)
}

// sendAtMostOnce appends the response, an atomic acknowledge or a READ response without data. It reports whether
// there was room.
func (r *responder) sendAtMostOnce(res *resource, tx *link.TxBatch) bool {
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
