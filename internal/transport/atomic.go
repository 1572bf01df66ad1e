package transport

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// onAtomic executes a COMPARE SWAP or a FETCH ADD. The original value of the memory is kept in the responder
// resource: a duplicate request is answered from there and never executed again.
func (r *responder) onAtomic(p wire.Packet) *fault {
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
		was, ok = mr.CompareSwap(word, h.Compare(), h.SwapAdd())
	} else {
		was, ok = mr.FetchAdd(word, h.SwapAdd())
	}
	window.Release()
	if !ok {
		r.unmapped(h.RKey(), h.Addr(), 8)
		return faultAccess
	}
	r.done(res, p, was)
	return nil
}
