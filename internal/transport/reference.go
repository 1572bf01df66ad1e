package transport

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
)

// A long SEND or WRITE from memory that the peer's process can map or read is sent by reference: the packet carries no
// payload, and the responder copies it from the shared memory, or from the memory of the requester's process. The work
// request stays incomplete, and its memory unchanged, until the peer acknowledges it. If it completes in another way,
// because the QP fails or is reset, the outstanding references are revoked first.
//
// Long READ responses from such memory are sent by reference too. No acknowledgement tells when the requester has
// copied them, but a READ is not complete before that: until then its bytes may be those of any time, and the program
// that lets a peer READ cannot know earlier that it has done so. The references are revoked when the key ends, or the
// QP fails or is reset.

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
	for off == w.SGEs[i].Length { // bytes are left
		i, off = i+1, 0
	}
	s := &w.SGEs[i]
	region, share := r.qp.shared(s.LKey, s.Length-off, tx)
	if share == nil || share.Plain() && r.resends() { // a copy finds out whether the program has unmapped the memory
		return ref, 0
	}
	return refer(region, share, s.Addr+uint64(off), s.Length-off)
}

// shared returns the region of a key and its share, if the peer can read it and n bytes are worth a reference. share is
// nil otherwise, also for the key of a window.
func (qp *QP) shared(key, n uint32, tx *link.TxBatch) (region *mr.Region, share *link.Share) {
	if region = qp.Regions.Get(key); region == nil {
		return nil, nil
	}
	s, _ := region.Share.(*link.Share)
	if !(reference{share: s}).worth(n) || !tx.Reads(qp.path, qp.attr.DestQPN, s) {
		return nil, nil
	}
	return region, s
}

// refer returns the reference to n bytes at addr of a region, and the number of them that a packet may cover: 0 if addr
// is not in the region.
func refer(region *mr.Region, share *link.Share, addr uint64, n uint32) (ref reference, most int) {
	at := addr - region.Base
	switch {
	case !share.Plain():
		ref = reference{share, share.Off + int64(at)}
	case at < uint64(len(region.Buf)):
		ref = reference{share, int64(uintptr(unsafe.Pointer(&region.Buf[at])))}
	default:
		return ref, 0
	}
	return ref, int(min(n, link.MaxRef))
}

// resends reports whether the next packet was sent before.
func (r *requester) resends() bool { return (r.nxt-r.una)&psn.Mask < (r.max-r.una)&psn.Mask }

// revoke invalidates outstanding references. It is called before a work request may complete without an
// acknowledgement.
func (r *requester) revoke() { r.qp.revoke(&r.sentByReference) }

// revoke invalidates outstanding references, if some is set: there may be some.
func (qp *QP) revoke(some *bool) {
	if !*some {
		return
	}
	*some = false
	if h, ok := qp.Host.(Revoker); ok {
		h.Revoke(qp)
	}
}

// payloadIntact reports whether the payload of a packet by reference was still valid after it was copied. If not, the
// packet is treated as lost.
func (r *responder) payloadIntact() bool { return r.data.intact(r.epoch) }

// byReference reports whether the next bytes of a READ can be sent by reference. most is the number of bytes that one
// packet may cover, 0 if none.
//
// Memory in a file is shared as a whole. The peer of a READ gets it only if its key opens the whole of it.
func (r *responder) byReference(res *resource, tx *link.TxBatch) (ref reference, most int) {
	if res.again || res.left < link.MinRef {
		return ref, 0
	}
	region, share := r.qp.shared(res.rkey, res.left, tx) // not of a window, whose end does not revoke references
	if share == nil || !share.Plain() && !share.Whole(len(region.Buf)) {
		return ref, 0
	}
	return refer(region, share, res.at, res.left)
}

// revoke invalidates the references of READ responses. It is called when the QP fails or is reset.
func (r *responder) revoke() { r.qp.revoke(&r.lent) }
