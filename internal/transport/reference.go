package transport

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/psn"
)

// A long SEND or WRITE from memory that the peer's process can map or read is sent by reference: the packet carries no
// payload, and the responder copies it from the shared memory, or from the memory of the requester's process. The work
// request stays incomplete, and its memory unchanged, until the peer acknowledges it. If it completes in another way,
// because the QP fails or is reset, the outstanding references are revoked first.

// reference locates the payload of a packet.
type reference struct {
	share *link.Share // nil: the payload is in the packet
	off   int64       // in the file of the share, or the address if it has none
}

// worth reports whether a packet of n bytes is better sent by the reference than with a copy.
func (ref reference) worth(n uint32) bool {
	return ref.share != nil && (n >= link.MinPlainRef || n >= link.MinRef && !ref.share.Plain())
}

// byReference reports whether the bytes of w from pos on can be sent by reference. most is the number of bytes that
// one packet may cover, 0 if none.
func (r *requester) byReference(w *SendWQE, pos uint32, tx *link.TxBatch) (ref reference, most int) {
	if !r.reliable || w.Flags&Inline != 0 || w.Length-pos < link.MinRef {
		return ref, 0
	}
	c := &r.from
	c.seek(w.SGEs, r.cur, pos)
	i, off := c.sge, c.off
	for i < len(w.SGEs) && off == w.SGEs[i].Length {
		i, off = i+1, 0
	}
	if i == len(w.SGEs) {
		return ref, 0
	}
	s := &w.SGEs[i]
	region := r.qp.Regions.Get(s.LKey)
	if region == nil {
		return ref, 0
	}
	share, ok := region.Share.(*link.Share)
	if !ok || !(reference{share: share}).worth(s.Length-off) || !tx.Reads(r.qp.path, r.qp.attr.DestQPN, share) {
		return ref, 0
	}
	at := s.Addr - region.Base + uint64(off)
	if share.Plain() {
		if r.resends() || at >= uint64(len(region.Buf)) {
			return ref, 0 // the copy finds out whether the program has unmapped the memory
		}
		return reference{share, int64(uintptr(unsafe.Pointer(&region.Buf[at])))}, int(min(s.Length-off, link.MaxRef))
	}
	ref = reference{share, share.Off + int64(at)}
	return ref, int(min(s.Length-off, link.MaxRef))
}

// resends reports whether the next packet was sent before.
func (r *requester) resends() bool { return (r.nxt-r.una)&psn.Mask < (r.max-r.una)&psn.Mask }

// revoke invalidates outstanding references. It is called before a work request may complete without an
// acknowledgement.
func (r *requester) revoke() {
	if !r.sentByReference {
		return
	}
	r.sentByReference = false
	if h, ok := r.qp.Host.(Revoker); ok {
		h.Revoke(r.qp)
	}
}

// payloadIntact reports whether the payload of a packet by reference was still valid after it was copied. If not, the
// packet is treated as lost.
func (r *responder) payloadIntact() bool {
	return !r.epoch.Over() && (r.data.away == nil || !r.data.away.Failed())
}
