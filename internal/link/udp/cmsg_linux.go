package udp

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// controlBuffer holds the control messages of one message: at most a segment size, a traffic class and a hop limit.
type controlBuffer struct {
	_   [0]uint64 // the alignment of struct cmsghdr
	buf [128]byte
	n   int
}

var (
	cmsgHeader = unix.CmsgLen(0)
	cmsgInt    = unix.CmsgSpace(4)
)

func (c *controlBuffer) reset() { c.n = 0 }

// next appends a control message and returns the buffer for its data.
func (c *controlBuffer) next(level, typ int32, length int) []byte {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.buf[c.n]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(length))
	data := c.buf[c.n+cmsgHeader:][:length]
	c.n += cmsgInt // every kind has at most 4 bytes
	return data
}

func (c *controlBuffer) putSegment(size int) {
	binary.NativeEndian.PutUint16(c.next(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(size))
}

func (c *controlBuffer) putTClass(v4 bool, v uint8) {
	level, typ := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS)
	if v4 {
		level, typ = unix.IPPROTO_IP, unix.IP_TOS
	}
	binary.NativeEndian.PutUint32(c.next(level, typ, 4), uint32(v))
}

func (c *controlBuffer) putHopLimit(v4 bool, v uint8) {
	level, typ := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_HOPLIMIT)
	if v4 {
		level, typ = unix.IPPROTO_IP, unix.IP_TTL
	}
	binary.NativeEndian.PutUint32(c.next(level, typ, 4), uint32(v))
}

// attach sets the control messages of h.
func (c *controlBuffer) attach(h *unix.Msghdr) {
	h.Control = nil
	if c.n > 0 {
		h.Control = &c.buf[0]
	}
	h.SetControllen(c.n)
}

// received holds the control messages of a received message.
type received struct {
	segment  int // length of the packets in a GSO run; 0 if the message is one packet
	tclass   uint8
	hopLimit uint8
}

// parse decodes the first n bytes of the buffer, which the kernel filled.
func (c *controlBuffer) parse(n int) (r received) {
	for off := 0; off+cmsgHeader <= n; {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&c.buf[off]))
		data := c.buf[off+cmsgHeader:]
		switch {
		case h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_GRO:
			r.segment = int(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TOS:
			r.tclass = data[0] // one byte, unlike all others
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_TTL,
			h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_HOPLIMIT:
			r.hopLimit = uint8(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_TCLASS:
			r.tclass = uint8(binary.NativeEndian.Uint32(data))
		}
		if int(h.Len) < cmsgHeader {
			break
		}
		off += unix.CmsgSpace(int(h.Len) - cmsgHeader)
	}
	return r
}
