package raw

import (
	"encoding/binary"
	"errors"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// A Segmenter splits a large TCP payload into frames (TSO): each has the same headers, with its own lengths,
// identification, sequence number, flags and checksums.
type Segmenter struct {
	hdr  []byte
	h    Headers
	mss  int
	left int
	n    uint32 // segments made
	sent uint32 // bytes
}

// Errors of headers that cannot be segmented.
var (
	errTSOHeader = errors.New(
		"the header of a TSO request must be Ethernet, IPv4 or IPv6, and TCP, and end with the TCP header",
	)
	errTSOMSS = errors.New("the segment size of a TSO request must be at least 1")
)

// Start prepares for n bytes of payload after hdr, in segments of mss bytes. It keeps hdr and corrects its IP
// length.
func (g *Segmenter) Start(hdr []byte, mss, n int) error {
	if mss == 0 {
		return errTSOMSS
	}
	g.hdr, g.mss, g.left, g.n, g.sent = hdr, mss, n, 0, 0
	Parse(hdr, &g.h)
	putIPLength(hdr, ethLen+g.h.Outer.VLANs*vlanLen, g.h.Outer.EtherType)
	Parse(hdr, &g.h)
	if !g.h.Outer.endsWithTCP(hdr) {
		return errTSOHeader
	}
	return nil
}

// putIPLength writes the length of the IP packet that begins at l3 and ends with b, if there is a header.
func putIPLength(b []byte, l3 int, etherType uint16) {
	switch {
	case etherType == typeIPv4 && len(b) >= l3+20:
		binary.BigEndian.PutUint16(b[l3+2:], uint16(len(b)-l3))
	case etherType == typeIPv6 && len(b) >= l3+40:
		binary.BigEndian.PutUint16(b[l3+4:], uint16(len(b)-l3-40))
	}
}

// endsWithTCP reports whether b ends with the TCP header of s.
func (s *Stack) endsWithTCP(b []byte) bool {
	return s.Proto == protoTCP && s.L4 >= 0 && len(b) == s.L4+int(b[s.L4+12]>>4)*4
}

// Next writes the headers of the next frame to b, which has room for the whole frame, and returns the length of the
// headers and of the payload that must follow. ok is false if there are no more frames. Finish completes the frame.
func (g *Segmenter) Next(b []byte) (hdr, payload int, ok bool) {
	if g.left == 0 && g.n > 0 {
		return 0, 0, false
	}
	n := min(g.left, g.mss)
	g.left -= n
	copy(b, g.hdr)
	s := &g.h.Outer
	if s.IP == 4 {
		putIPLength(b[:len(g.hdr)+n], s.L3, typeIPv4)
	} else {
		putIPLength(b[:len(g.hdr)+n], s.L3, typeIPv6)
	}
	s.number(b, transport.Segment{Index: g.n, Sent: g.sent, Last: g.left == 0})
	s.End = len(g.hdr) + n
	g.n++
	g.sent += uint32(n)
	return len(g.hdr), n, true
}

// number gives b, a copy of the first segment's headers, what differs in another segment: the identification, the
// sequence number and the flags.
func (s *Stack) number(b []byte, g transport.Segment) {
	if s.IP == 4 {
		id := binary.BigEndian.Uint16(b[s.L3+4:])
		binary.BigEndian.PutUint16(b[s.L3+4:], id+uint16(g.Index))
	}
	seq := binary.BigEndian.Uint32(b[s.L4+4:])
	binary.BigEndian.PutUint32(b[s.L4+4:], seq+g.Sent)
	if !g.Last {
		b[s.L4+13] &^= tcpFIN | tcpPSH
	}
	if g.Index > 0 {
		b[s.L4+13] &^= tcpCWR
	}
}

// Finish computes the checksums of the frame that Next began.
func (g *Segmenter) Finish(b []byte) { FillChecksums(b, &g.h) }

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)
