package wire

import "net/netip"

// The invariant CRC (ICRC) is the CRC-32 of Ethernet over 8 bytes of ones (in place of the LRH of InfiniBand), the
// IP header, the UDP header and the packet from BTH to pad. Fields that may change on the way count as ones: IPv4
// type of service, time to live and checksum; IPv6 traffic class, flow label and hop limit; UDP checksum; byte 4 of
// the BTH. Everything else is covered, including the IPv4 identification. It is stored little endian (IBTA volume
// 1, 7.8.1 and A17.3.3).
//
// A CRC is linear over GF(2): the register after the headers is that of the headers with some fields zero, XORed
// with the contribution of each of these fields. So the headers of a flow, except for the lengths and the
// identification, reduce to one 32-bit number.

// Flow is the part of the ICRC that all packets between two addresses and ports share. It is a small value, to be
// kept or to be made for each packet; making one does not allocate.
type Flow struct {
	crc uint32 // the register after IP and UDP header, with lengths and identification 0
	v4  bool
}

const (
	crcSeed = 0xDEBB20E3 // the register after 8 bytes of ones
	flagDF  = 0x40       // byte 6 of an IPv4 header: don't fragment, fragment offset 0

	ipv4Len = 20
	ipv6Len = 40
	udpLen  = 8

	protoUDP = 17 // in the IPv4 protocol and IPv6 next header field
)

// NewFlow makes the Flow of the UDP datagrams from src:srcPort to dst:dstPort. The addresses are both IPv4, in
// 4-byte or 4-in-6 form, or else are both taken as IPv6. IPv4 datagrams have a header of 20 bytes with DF set, as
// RoCEv2 senders use.
func NewFlow(src, dst netip.Addr, srcPort, dstPort uint16) Flow {
	src, dst = src.Unmap(), dst.Unmap()
	var buf [ipv6Len + udpLen]byte
	h := buf[:]
	v4 := src.Is4() && dst.Is4()
	if v4 {
		h = h[:ipv4Len+udpLen]
		s, d := src.As4(), dst.As4()
		h[0], h[1], h[6], h[8], h[9], h[10], h[11] = 0x45, 0xFF, flagDF, 0xFF, protoUDP, 0xFF, 0xFF
		copy(h[12:], s[:])
		copy(h[16:], d[:])
	} else {
		s, d := src.As16(), dst.As16()
		h[0], h[1], h[2], h[3], h[6], h[7] = 0x6F, 0xFF, 0xFF, 0xFF, protoUDP, 0xFF
		copy(h[8:], s[:])
		copy(h[24:], d[:])
	}
	udp := h[len(h)-udpLen:]
	be.PutUint16(udp, srcPort)
	be.PutUint16(udp[2:], dstPort)
	udp[6], udp[7] = 0xFF, 0xFF
	return Flow{crc: advance(crcSeed, h), v4: v4}
}

// ICRC computes the invariant CRC of pkt, the bytes from BTH to pad, sent with the given IPv4
// identification. IPv6 has none: id is ignored. pkt holds at least a BTH and at most 65507 bytes.
func (f Flow) ICRC(pkt []byte, id uint16) uint32 {
	return ^Sum(f.start(pkt, id), pkt[BTHLen:])
}

// start returns the register after the BTH of pkt.
func (f Flow) start(pkt []byte, id uint16) uint32 {
	n := uint16(udpLen + len(pkt) + ICRCLen)
	s := f.crc
	if f.v4 {
		s ^= ipv4Total.at(ipv4Len+n) ^ ipv4UDP.at(n) ^ ipv4ID.at(id)
	} else {
		s ^= ipv6Both.at(n)
	}
	s = step4(s ^ le.Uint32(pkt))
	s = step4(s ^ (le.Uint32(pkt[4:]) | 0xFF))
	return step4(s ^ le.Uint32(pkt[8:]))
}

// Seal writes the ICRC into the last 4 bytes of b, the bytes from BTH to ICRC of a packet sent
// with the given IPv4 identification (ignored for IPv6).
func (f Flow) Seal(b []byte, id uint16) {
	n := len(b) - ICRCLen
	le.PutUint32(b[n:], f.ICRC(b[:n], id))
}

// Verify checks the ICRC in the last 4 bytes of b, the bytes from BTH to ICRC of a received packet.
//
// For IPv4, guess is the identification that is tried first. If it does not fit, Verify asks SolveID for another
// that does, and returns it, since a socket does not return the received one. Of the 32 bits of checking 15 remain
// in that case. A caller that knows the received identification compares it with id. For IPv6, id is guess.
func (f Flow) Verify(b []byte, guess uint16) (id uint16, ok bool) {
	n := len(b) - ICRCLen
	if n < BTHLen || n > maxSolve || n&3 != 0 {
		return 0, false
	}
	diff := f.ICRC(b[:n], guess) ^ le.Uint32(b[n:])
	if diff == 0 || !f.v4 {
		return guess, diff == 0
	}
	d, ok := SolveID(diff, n)
	return guess ^ d, ok
}

// field16 holds the contribution of a 16-bit header field to the register after the headers, for each value of its
// upper and lower byte.
type field16 struct{ hi, lo [256]uint32 }

func (f *field16) at(v uint16) uint32 { return f.hi[v>>8] ^ f.lo[v&0xFF] }

// The variable fields in the headers of a flow.
var (
	ipv4Total = newField(ipv4Len+udpLen, 2)
	ipv4ID    = newField(ipv4Len+udpLen, 4)
	ipv4UDP   = newField(ipv4Len+udpLen, ipv4Len+4)
	ipv6Both  = newField(ipv6Len+udpLen, 4, ipv6Len+4) // payload length and UDP length are equal
)

// newField makes the table of a field at the given offsets of headers of n bytes.
func newField(n int, offsets ...int) *field16 {
	add := func(v int) uint32 {
		var h [ipv6Len + udpLen]byte
		for _, off := range offsets {
			be.PutUint16(h[off:], uint16(v))
		}
		return advance(0, h[:n])
	}
	f := new(field16)
	for b := 1; b < 256; b++ {
		if low := b & -b; low == b {
			f.hi[b], f.lo[b] = add(b<<8), add(b)
		} else { // the contribution of two bits is the sum of both
			f.hi[b], f.lo[b] = f.hi[low]^f.hi[b^low], f.lo[low]^f.lo[b^low]
		}
	}
	return f
}
