package pcap

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"
)

// MaxSegment is the most data of a Segment, in bytes.
const MaxSegment = 16 << 10

// TCP's flags.
const (
	FlagFIN = 0x01
	FlagSYN = 0x02
	FlagRST = 0x04
	FlagPSH = 0x08
	FlagACK = 0x10
)

// A Segment is a piece of a TCP stream. The kernel's own segments are not known here: the numbers are those of a stream
// that begins with 0 in both directions, and an acknowledgement is that of what was read.
type Segment struct {
	Src, Dst netip.AddrPort
	Seq, Ack uint32
	Flags    uint8
	QPN      uint32
	Sent     bool
	Data     []byte // at most MaxSegment
}

const (
	tcpLen    = 20
	tcp       = 6
	tcpWindow = 0xFFFF
)

// Segment writes a piece of a stream as a packet with IP and TCP headers. It is safe for concurrent use.
func (s *Sink) Segment(g *Segment) {
	ns := time.Now().UnixNano()
	direction := uint32(inbound)
	if g.Sent {
		direction = outbound
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if len(s.now) >= pieceLen && !s.pass() {
		s.dropped++
		s.lost++
		return
	}
	at := len(s.now)
	b := slices.Grow(s.now, blockHead+40+tcpLen+len(g.Data)+blockTail+32)[:at+blockHead]
	first := len(b)
	b = appendTCP(b, g)
	n := len(b) - first
	kept := n
	if snap := int(s.snap.Load()); snap > 0 {
		kept = min(n, snap)
	}
	putHead((*[blockHead]byte)(b[at:]), s.iface, ns, kept, n)
	var text [16]byte
	s.now = appendTail(b[:first+kept], at, direction, s.lost, appendQPN(text[:0], g.QPN))
	s.lost = 0
}

// appendTCP appends a packet.
func appendTCP(b []byte, g *Segment) []byte {
	be := binary.BigEndian
	src, dst := g.Src.Addr(), g.Dst.Addr()
	n := tcpLen + len(g.Data)
	at := len(b)
	if dst.Is4() {
		b = append(b, 0x45, 0)
		b = be.AppendUint16(b, uint16(ipv4Len+n))
		b = append(b, 0, 0, 0x40, 0, 64, tcp, 0, 0)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
		be.PutUint16(b[at+10:], ^sum(b[at:]))
	} else {
		b = be.AppendUint32(b, 6<<28)
		b = be.AppendUint16(b, uint16(n))
		b = append(b, tcp, 64)
		b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	}
	head := len(b)
	b = be.AppendUint16(b, g.Src.Port())
	b = be.AppendUint16(b, g.Dst.Port())
	b = be.AppendUint32(b, g.Seq)
	b = be.AppendUint32(b, g.Ack)
	b = append(b, tcpLen/4<<4, g.Flags)
	b = be.AppendUint16(b, tcpWindow)
	b = append(b, 0, 0, 0, 0)
	b = append(b, g.Data...)
	// The pseudo-header: both addresses, the protocol, the length.
	total := uint32(tcp) + uint32(n) + uint32(sum(append(src.AsSlice(), dst.AsSlice()...))) + evenSum(b[head:])
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	be.PutUint16(b[head+16:], ^uint16(total))
	return b
}

// evenSum is sum of any number of bytes.
func evenSum(b []byte) uint32 {
	odd := uint32(0)
	if n := len(b); n%2 != 0 {
		odd, b = uint32(b[n-1])<<8, b[:n-1]
	}
	return odd + uint32(sum(b))
}
