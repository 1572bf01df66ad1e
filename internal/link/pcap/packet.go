package pcap

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	ipv4Len = 20
	udpLen  = 8
	udp     = 17
)

// headers caches the IP and UDP headers of the last packet, since the next one usually has the same.
type headers struct {
	path link.Path
	port uint16
	n    int
	b    []byte
	flow wire.Flow // computes their ICRCs
}

// of returns the headers of a packet of n bytes, BTH to ICRC. They are valid until the next call.
func (h *headers) of(p *link.Path, port uint16, n int) []byte {
	if n == h.n && port == h.port && p.Equal(&h.path) {
		return h.b
	}
	h.path, h.port, h.n = *p, port, n
	h.path.Route = nil // it belongs to the QP and may be freed
	h.b = appendHeaders(h.b[:0], p, port, n)
	h.flow = wire.NewFlow(p.Src, p.Dst, port, wire.Port)
	return h.b
}

// sourcePort returns a source port that a sender could use for packets to a QP.
func sourcePort(qpn uint32) uint16 { return 0xC000 | uint16(qpn&0x3fff) }

// appendHeaders appends the IP and UDP headers of a packet of n bytes, BTH to ICRC.
func appendHeaders(b []byte, p *link.Path, port uint16, n int) []byte {
	be := binary.BigEndian
	hops := p.HopLimit
	if hops == 0 {
		hops = 64
	}
	at := len(b)
	if p.Dst.Is4() {
		b = append(b, 0x45, p.TClass)
		b = be.AppendUint16(b, uint16(ipv4Len+udpLen+n))
		b = append(b, 0, 0, 0x40, 0, hops, udp, 0, 0)
		src, dst := p.Src.As4(), p.Dst.As4()
		b = append(append(b, src[:]...), dst[:]...)
		be.PutUint16(b[at+10:], ^sum(b[at:]))
	} else {
		b = be.AppendUint32(b, 6<<28|uint32(p.TClass)<<20|p.FlowLabel&0xfffff)
		b = be.AppendUint16(b, uint16(udpLen+n))
		b = append(b, udp, hops)
		src, dst := p.Src.As16(), p.Dst.As16()
		b = append(append(b, src[:]...), dst[:]...)
	}
	b = be.AppendUint16(b, port)
	b = be.AppendUint16(b, wire.Port)
	b = be.AppendUint16(b, uint16(udpLen+n))
	return append(b, 0, 0) // no checksum, as rxe sends it
}

// sum returns the Internet checksum before its inversion.
func sum(b []byte) uint16 {
	var s uint32
	for i := 0; i < len(b); i += 2 {
		s += uint32(b[i])<<8 | uint32(b[i+1])
	}
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}
