package cmmsg

import (
	"fmt"
	"net/netip"
)

// ServiceID identifies a service of a host, 64 bits. Those of rdma_cm consist of a port space and a port.
type ServiceID uint64

// PortSpace is a family of ports of rdma_cm (enum rdma_ucm_port_space); they do not share port numbers.
type PortSpace uint16

// Port spaces.
const (
	PSIPoIB PortSpace = 0x0002
	PSTCP   PortSpace = 0x0106
	PSUDP   PortSpace = 0x0111
	PSIB    PortSpace = 0x013F
)

var portSpaceNames = map[PortSpace]string{PSIPoIB: "IPOIB", PSTCP: "TCP", PSUDP: "UDP", PSIB: "IB"}

func (ps PortSpace) String() string {
	if s, ok := portSpaceNames[ps]; ok {
		return s
	}
	return fmt.Sprintf("port space %#x", uint16(ps))
}

// Service returns the service ID of a port: (port space << 16) + port.
func (ps PortSpace) Service(port uint16) ServiceID { return ServiceID(ps)<<16 | ServiceID(port) }

// Port splits a service ID. ok is false if it is not one of rdma_cm's.
func (s ServiceID) Port() (ps PortSpace, port uint16, ok bool) {
	ps, port = PortSpace(s>>16), uint16(s)
	return ps, port, s>>32 == 0 && portSpaceNames[ps] != ""
}

// SamePort reports whether two service IDs are equal, or have the same port in port spaces of rdma_cm.
func (s ServiceID) SamePort(t ServiceID) bool {
	_, a, known := s.Port()
	_, b, both := t.Port()
	return s == t || known && both && a == b
}

// String returns "TCP:7471" for rdma_cm's service IDs and hexadecimal for others.
func (s ServiceID) String() string {
	if ps, port, ok := s.Port(); ok {
		return fmt.Sprintf("%v:%d", ps, port)
	}
	return fmt.Sprintf("0x%016x", uint64(s))
}

// IPHeaderLen is the length of an IPHeader, in bytes.
const IPHeaderLen = 36

// IPHeader precedes the private data of REQ and SIDR_REQ when rdma_cm connects IP addresses, 36 bytes: major and
// minor version 8, both 0; IP version 4, reserved 4; source port 16; source address 128; destination address 128.
// An IPv4 address is in the last four of its 16 bytes. The destination port is in the service ID. No other message
// has this header.
type IPHeader []byte

// Version is the version of the header; only 0 exists.
func (h IPHeader) Version() uint8 { return h[0] }

// IPVersion is 4 or 6. Anything else means that the private data does not begin with this header at all.
func (h IPHeader) IPVersion() uint8 { return h[1] >> 4 }

// SrcPort is the connecting side's port.
func (h IPHeader) SrcPort() uint16 { return be.Uint16(h[2:]) }

// Src and Dst are the addresses, IPv4 or IPv6 according to IPVersion; invalid if IPVersion is neither.
func (h IPHeader) Src() netip.Addr { return h.addr(4) }
func (h IPHeader) Dst() netip.Addr { return h.addr(20) }

func (h IPHeader) addr(i int) netip.Addr {
	switch h.IPVersion() {
	case 4:
		return netip.AddrFrom4([4]byte(h[i+12 : i+16]))
	case 6:
		return netip.AddrFrom16([16]byte(h[i : i+16]))
	}
	return netip.Addr{}
}

// Put writes the whole header. Both addresses are IPv4, 4-in-6 forms included, or both IPv6, whose zone is dropped.
func (h IPHeader) Put(src netip.AddrPort, dst netip.Addr) {
	_ = h[IPHeaderLen-1]
	clear(h[:IPHeaderLen])
	be.PutUint16(h[2:], src.Port())
	s, d := src.Addr().Unmap(), dst.Unmap()
	if s.Is4() && d.Is4() {
		h[1] = 4 << 4
		a, b := s.As4(), d.As4()
		copy(h[16:20], a[:])
		copy(h[32:36], b[:])
		return
	}
	h[1] = 6 << 4
	a, b := s.As16(), d.As16()
	copy(h[4:20], a[:])
	copy(h[20:36], b[:])
}

// AppendIPHeader appends the header to b.
func AppendIPHeader(b []byte, src netip.AddrPort, dst netip.Addr) []byte {
	var h [IPHeaderLen]byte
	IPHeader(h[:]).Put(src, dst)
	return append(b, h[:]...)
}

// GID returns the RoCEv2 GID of an IP address: an IPv6 address unchanged, an IPv4 one as ::ffff:a.b.c.d.
func GID(a netip.Addr) [16]byte { return a.As16() }

// IP returns the address of a RoCEv2 GID, in 4-byte form if it is IPv4.
func IP(gid [16]byte) netip.Addr { return netip.AddrFrom16(gid).Unmap() }
