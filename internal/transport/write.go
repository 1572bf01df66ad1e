package transport

import (
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// write is the state of the current RDMA WRITE: the address of its next byte and the bytes still to come.
type write struct {
	rkey uint32
	addr uint64
	left uint32
	size uint32 // of the whole message
}

// onWrite handles one packet of an RDMA WRITE. The whole range is checked at the first packet. Each packet's range is
// checked again, because the region may have been deregistered since.
func (r *responder) onWrite(p wire.Packet, info *wire.Info) *fault {
	data, w := r.data, r.write
	ends := info.Flags&wire.End != 0
	if info.Flags&wire.Start != 0 {
		h := p.RETH()
		w = write{rkey: h.RKey(), addr: h.Addr(), left: h.DMALen(), size: h.DMALen()}
	}
	// The checks of a train's first packet come before those of its last packet.
	train := r.span > 1 && info.Flags&wire.Start != 0
	if info.Flags&wire.HasImm != 0 && !train && !r.take() {
		return notReady
	}
	if info.Flags&wire.Start != 0 && !train {
		r.qp.Counters.RxWriteRequests++
	}
	n := uint32(data.len())
	switch {
	case w.size > maxMessage, !r.checkPayload(info, data.len()), n > w.left, ends != (n == w.left):
		return faultWriteLength
	case info.Flags&wire.Start != 0 && !r.checkRange(&w):
		return faultAccess
	case info.Flags&wire.HasImm != 0 && train && !r.take():
		return notReady
	}
	if train {
		r.qp.Counters.RxWriteRequests++
	}
	if n > 0 {
		dst, window, ok := r.theirs(w.rkey, w.addr, uint64(n), r.pd, mr.RemoteWrite)
		if !ok {
			return faultAccess
		}
		r.readAhead(p, dst)
		ok = data.copy(dst, 0)
		window.Release()
		if !ok {
			r.unmapped(w.rkey, w.addr, uint64(n))
			return faultAccess
		}
		if !r.payloadIntact() {
			if info.Flags&wire.HasImm != 0 {
				r.untake()
			}
			return revoked
		}
		r.qp.bytes.received += uint64(n)
	}
	w.addr += uint64(n)
	w.left -= n
	r.write, r.phase = w, inWrite
	switch {
	case !ends:
		r.step(r.span, false)
	case info.Flags&wire.HasImm != 0:
		r.finish(r.newCQE(CQRecvRDMAImm, w.size), p, info)
	default:
		r.phase = between
		r.step(r.span, true)
	}
	return nil
}

// checkRange reports whether the peer may write the whole range of w. The key of an empty message is not checked.
func (r *responder) checkRange(w *write) bool {
	if w.size == 0 {
		return true
	}
	_, window, ok := r.theirs(w.rkey, w.addr, uint64(w.size), r.pd, mr.RemoteWrite)
	window.Release()
	return ok
}
