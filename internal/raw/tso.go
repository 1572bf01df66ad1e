package raw

import (
	"encoding/binary"
	"errors"
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
	l3 := ethLen + g.h.Outer.VLANs*vlanLen
	switch t := g.h.Outer.EtherType; {
	case t == typeIPv4 && len(hdr) >= l3+20:
		binary.BigEndian.PutUint16(hdr[l3+2:], uint16(len(hdr)-l3))
	case t == typeIPv6 && len(hdr) >= l3+40:
		binary.BigEndian.PutUint16(hdr[l3+4:], uint16(len(hdr)-l3-40))
	}
	Parse(hdr, &g.h)
	if s := &g.h.Outer; s.Proto != protoTCP || s.L4 < 0 || len(hdr) != s.L4+int(hdr[s.L4+12]>>4)*4 {
		return errTSOHeader
	}
	return nil
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
	length := len(g.hdr) - s.L3 + n
	if s.IP == 4 {
		binary.BigEndian.PutUint16(b[s.L3+2:], uint16(length))
		id := binary.BigEndian.Uint16(b[s.L3+4:])
		binary.BigEndian.PutUint16(b[s.L3+4:], id+uint16(g.n))
	} else {
		binary.BigEndian.PutUint16(b[s.L3+4:], uint16(length-40))
	}
	seq := binary.BigEndian.Uint32(b[s.L4+4:])
	binary.BigEndian.PutUint32(b[s.L4+4:], seq+g.sent)
	if g.left > 0 {
		b[s.L4+13] &^= tcpFIN | tcpPSH
	}
	if g.n > 0 {
		b[s.L4+13] &^= tcpCWR
	}
	s.End = len(g.hdr) + n
	g.n++
	g.sent += uint32(n)
	return len(g.hdr), n, true
}

// Finish computes the checksums of the frame that Next began.
func (g *Segmenter) Finish(b []byte) { FillChecksums(b, &g.h) }

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)
