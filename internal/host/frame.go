package host

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// A frame is one message between a member and its leader. A member sends requests, one at a time, and the leader
// answers each with a reply. Mail goes in both directions and is not answered.
type frame struct {
	kind   kind
	resume bool          // the sender owns the object already; an earlier leader assigned it
	slot   int           // -1: any
	errno  syscall.Errno // of a reply; 0: success
	seq    uint32        // of a request and its reply
	id     uint64        // service ID; in a join and its reply the version
	addr   netip.Addr    // multicast group
}

type kind byte

const (
	kindReply    kind = 'R'
	kindJoin     kind = 'J'
	kindClaim    kind = 'C' // a slot
	kindRelease  kind = 'D'
	kindListen   kind = 'L' // on a service ID
	kindUnlisten kind = 'U'
	kindEnter    kind = 'E' // a multicast group
	kindLeave    kind = 'X'
	kindMail     kind = 'M'
)

const (
	// version changes with the layout of frames and of the memory of last wills, the descriptors in a reply to a join, and
	// the order of the sockets.
	version = 5

	frameLen = 36
	anySlot  = 0xFFFF

	// mailHeader is the length of the fields before a packet of mail: kind, traffic class, hop limit, source and
	// destination in 16 bytes each.
	mailHeader = 3 + 2*16
	maxFrame   = 8 << 10
)

// A Mail is a packet that another process received for this one: a packet for QP 1 or for a multicast group, or one
// that the kernel merged with packets of the other process.
type Mail struct {
	Packet   []byte // BTH to pad
	Src, Dst netip.Addr
	TClass   uint8
	HopLimit uint8
}

func (f *frame) bytes() []byte {
	b := make([]byte, frameLen)
	b[0] = byte(f.kind)
	if f.resume {
		b[1] = 1
	}
	slot := uint16(anySlot)
	if f.slot >= 0 {
		slot = uint16(f.slot)
	}
	binary.LittleEndian.PutUint16(b[2:], slot)
	binary.LittleEndian.PutUint32(b[4:], uint32(f.errno))
	binary.LittleEndian.PutUint64(b[8:], f.id)
	binary.LittleEndian.PutUint32(b[16:], f.seq)
	if f.addr.IsValid() {
		a := f.addr.As16()
		copy(b[20:], a[:])
	}
	return b
}

// parseFrame decodes any frame but mail. ok reports whether the frame is valid.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) != frameLen {
		return f, false
	}
	f = frame{
		kind: kind(b[0]), resume: b[1] != 0, slot: int(binary.LittleEndian.Uint16(b[2:])),
		errno: syscall.Errno(binary.LittleEndian.Uint32(b[4:])), id: binary.LittleEndian.Uint64(b[8:]),
		seq: binary.LittleEndian.Uint32(b[16:]), addr: netip.AddrFrom16([16]byte(b[20:])).Unmap(),
	}
	switch {
	case f.slot == anySlot:
		f.slot = -1
	case f.slot >= Slots:
		return f, false
	}
	switch f.kind {
	case kindReply, kindJoin, kindClaim, kindListen, kindUnlisten:
	case kindRelease:
		return f, f.slot >= 0
	case kindEnter, kindLeave:
		return f, f.addr.IsMulticast()
	default:
		return f, false
	}
	return f, true
}

// bytes encodes a mail as a frame. It returns nil if the packet is too long.
func (m *Mail) bytes() []byte {
	if len(m.Packet) > maxFrame-mailHeader {
		return nil
	}
	src, dst := m.Src.As16(), m.Dst.As16()
	f := make([]byte, 0, mailHeader+len(m.Packet))
	f = append(f, byte(kindMail), m.TClass, m.HopLimit)
	f = append(append(f, src[:]...), dst[:]...)
	return append(f, m.Packet...)
}

// parseMail decodes a frame of mail and copies its packet. ok reports whether the frame is valid.
func parseMail(b []byte) (m Mail, ok bool) {
	if len(b) < mailHeader || len(b) > maxFrame || kind(b[0]) != kindMail {
		return m, false
	}
	m = Mail{
		TClass: b[1], HopLimit: b[2], Packet: append([]byte(nil), b[mailHeader:]...),
		Src: netip.AddrFrom16([16]byte(b[3:])).Unmap(), Dst: netip.AddrFrom16([16]byte(b[19:])).Unmap(),
	}
	_, err := wire.Parse(m.Packet)
	return m, err == nil
}
