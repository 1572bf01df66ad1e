package wire

import "net/netip"

// GRH is the first 40 bytes of a UD receive buffer: the IP header of the packet. An IPv6 header fills it. An IPv4
// header is in bytes 20 to 39; Put4 sets the first 20 to zero, an adapter may leave anything there (IBTA
// A17.4.5.2).
type GRH []byte

const grhV4 = GRHLen - ipv4Len

// Put6 writes an IPv6 header for n bytes of IP payload.
func (h GRH) Put6(src, dst netip.Addr, tclass, hopLimit uint8, flowLabel uint32, n int) {
	be.PutUint32(h, 6<<28|uint32(tclass)<<20|flowLabel&0xFFFFF)
	be.PutUint16(h[4:], uint16(n))
	h[6], h[7] = protoUDP, hopLimit
	s, d := src.As16(), dst.As16()
	copy(h[8:24], s[:])
	copy(h[24:40], d[:])
}

// Put4 writes 20 zero bytes and an IPv4 header for n bytes of IP payload: DF set, identification 0, with its
// checksum. src and dst are IPv4, in 4-byte or 4-in-6 form.
func (h GRH) Put4(src, dst netip.Addr, tos, ttl uint8, n int) {
	clear(h[:grhV4])
	ip := h[grhV4:GRHLen]
	ip[0], ip[1] = 0x45, tos
	be.PutUint16(ip[2:], uint16(ipv4Len+n))
	be.PutUint32(ip[4:], flagDF<<8)
	ip[8], ip[9] = ttl, protoUDP
	be.PutUint16(ip[10:], 0)
	s, d := src.As4(), dst.As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	be.PutUint16(ip[10:], ^onesSum(ip))
}

// Put writes the form of the addresses, which are both IPv4 or both IPv6; flowLabel applies to IPv6 only.
func (h GRH) Put(src, dst netip.Addr, tclass, hopLimit uint8, flowLabel uint32, n int) {
	if src.Unmap().Is4() && dst.Unmap().Is4() {
		h.Put4(src, dst, tclass, hopLimit, n)
	} else {
		h.Put6(src, dst, tclass, hopLimit, flowLabel, n)
	}
}

// Version is 6 or 4, the form of the header, or 0 if it is neither. If both forms are possible the IPv4 checksum
// decides, since any bytes may precede an IPv4 header.
func (h GRH) Version() int {
	ip := h[grhV4:GRHLen]
	maybe4, maybe6 := ip[0] == 0x45, h[0]>>4 == 6
	switch {
	case maybe4 && (!maybe6 || onesSum(ip) == 0xFFFF):
		return 4
	case maybe6:
		return 6
	default:
		return 0
	}
}

// SrcIP is the sender's address; the zero Addr if Version is 0.
func (h GRH) SrcIP() netip.Addr { return h.addr(12, 8) }

// DstIP is the packet's destination address; the zero Addr if Version is 0.
func (h GRH) DstIP() netip.Addr { return h.addr(16, 24) }

func (h GRH) addr(off4, off6 int) netip.Addr {
	switch h.Version() {
	case 4:
		return netip.AddrFrom4([4]byte(h[grhV4+off4:]))
	case 6:
		return netip.AddrFrom16([16]byte(h[off6:]))
	default:
		return netip.Addr{}
	}
}

// TClass is the IPv6 traffic class or IPv4 type of service.
func (h GRH) TClass() uint8 {
	if h.Version() == 4 {
		return h[grhV4+1]
	}
	return uint8(be.Uint16(h) >> 4)
}

// HopLimit is the IPv6 hop limit or IPv4 time to live.
func (h GRH) HopLimit() uint8 {
	if h.Version() == 4 {
		return h[grhV4+8]
	}
	return h[7]
}

// FlowLabel is the IPv6 flow label, 20 bits; 0 for IPv4.
func (h GRH) FlowLabel() uint32 {
	if h.Version() == 4 {
		return 0
	}
	return be.Uint32(h) & 0xFFFFF
}

// onesSum is the one's complement sum of the Internet checksum.
func onesSum(b []byte) uint16 {
	var s uint32
	for ; len(b) >= 2; b = b[2:] {
		s += uint32(be.Uint16(b))
	}
	s = s>>16 + s&0xFFFF
	return uint16(s>>16 + s)
}
