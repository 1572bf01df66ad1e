package transport

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onAtomic executes a compare and swap or a fetch and add. The value that the memory held is kept
// with the resource: a duplicate is answered from there and never executed again.
func (r *responder) onAtomic(p wire.Packet, info *wire.Info) *fault {
	h := p.AtomicETH()
	r.qp.Counters.RxAtomicRequests++
	res := r.newResource()
	switch {
	case res == nil:
		return faultTooMany
	case h.Addr()%8 != 0:
		return faultMisaligned
	}
	word, window, ok := r.theirs(h.RKey(), h.Addr(), 8, r.pd, mr.RemoteAtomic)
	if !ok {
		return faultAccess
	}
	var was uint64
	if p.Opcode().Operation() == wire.CompareSwap {
		was = mr.CompareSwap(word, h.Compare(), h.SwapAdd())
	} else {
		was = mr.FetchAdd(word, h.SwapAdd())
	}
	window.Release()
	*res = resource{kind: resAtomic, op: p.Opcode(), first: r.epsn, last: r.epsn, next: r.epsn, was: was}
	r.step(1, true)
	r.queue(res)
	return nil
}

// replay answers a duplicate of what was executed and must not be executed again: an atomic operation, a FLUSH or an ATOMIC WRITE.
func (r *responder) replay(kind resKind, p wire.Packet) {
	i, ok := r.find(kind, p.BTH().PSN())
	if !ok || r.at(i).op != p.Opcode() {
		r.qp.Counters.BadDuplicate++
		return
	}
	r.requeue(i)
}

// sendAtomicAck appends the answer to an atomic operation and tells whether there was room for it.
func (r *responder) sendAtomicAck(res *resource, tx *link.TxBatch) bool {
	const head = wire.BTHLen + wire.AETHLen
	b := tx.Alloc(r.qp.path, r.qp.attr.DestQPN, head+wire.AtomicAckLen)
	if b == nil {
		return false
	}
	r.putBTH(b, wire.AtomicAck, 0, res.first)
	wire.AETH(b[wire.BTHLen:]).Put(wire.SynAck, res.msn)
	binary.BigEndian.PutUint64(b[head:], res.was)
	res.pending, res.answered = false, true
	return true
}
