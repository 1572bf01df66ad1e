package transport

import "github.com/verbena-rdma/verbena/internal/link"

// A long SEND or WRITE out of memory that the peer's process can read need not carry its payload: the responder copies it from
// where it lies. Until the peer acknowledges it, the work request is not complete and its memory does not change. When it
// completes otherwise, because the QP fails or is reset, the references under way are revoked first.

// reference is where the payload of a packet lies.
type reference struct {
	share *link.Share // nil: in the packet
	off   int64
}

// refer tells whether the bytes of w from pos on can go by reference, and if so how many of them at most in one packet.
func (r *requester) refer(w *SendWQE, pos uint32, tx *link.TxBatch) (ref reference, most int) {
	if !r.reliable || w.Flags&Inline != 0 || w.Length-pos < link.MinRef {
		return ref, 0
	}
	c := &r.from
	c.seek(w.SGEs, r.cur, pos)
	i, off := c.sge, c.off
	for i < len(w.SGEs) && off == w.SGEs[i].Length {
		i, off = i+1, 0
	}
	if i == len(w.SGEs) || w.SGEs[i].Length-off < link.MinRef {
		return ref, 0
	}
	s := &w.SGEs[i]
	region := r.qp.Regions.Get(s.LKey)
	if region == nil {
		return ref, 0
	}
	share, ok := region.Share.(*link.Share)
	if !ok || !tx.Reads(r.qp.path, r.qp.attr.DestQPN, share) {
		return ref, 0
	}
	ref = reference{share, share.Off + int64(s.Addr-region.Base) + int64(off)}
	return ref, int(min(s.Length-off, link.MaxRef))
}

// revoke makes references under way invalid. It comes before anybody may learn that a work request is done with.
func (r *requester) revoke() {
	if !r.referring {
		return
	}
	r.referring = false
	if h, ok := r.qp.Host.(Revoker); ok {
		h.Revoke(r.qp)
	}
}

// taken makes the payload of a packet by reference sure: false says that it was revoked while it was copied. The packet is then as
// one that was lost.
func (r *responder) taken() bool { return !r.epoch.Over() }
