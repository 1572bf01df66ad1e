package raw

import (
	"encoding/binary"
	"hash/crc32"
)

// sum adds big-endian 16-bit words to a ones' complement sum.
func sum(s uint64, b []byte) uint64 {
	for len(b) >= 8 {
		v := binary.BigEndian.Uint64(b)
		s += v>>32 + v&0xffffffff
		b = b[8:]
	}
	for len(b) >= 2 {
		s += uint64(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}

// fold reduces a sum to 16 bits.
func fold(s uint64) uint16 {
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return uint16(s)
}

// pseudo returns the sum of the pseudo header of TCP and UDP (RFC 9293, RFC 768, RFC 8200).
func (s *Stack) pseudo(b []byte) uint64 {
	from, to := s.L3+12, s.L3+20
	if s.IP == 6 {
		from, to = s.L3+8, s.L3+40
	}
	return sum(uint64(s.Proto)+uint64(s.End-s.L4), b[from:to])
}

// whole reports whether the frame contains the whole IP packet.
func (s *Stack) whole(b []byte) bool {
	if s.IP == 4 {
		return s.L3+int(binary.BigEndian.Uint16(b[s.L3+2:])) <= len(b)
	}
	return s.L3+40+int(binary.BigEndian.Uint16(b[s.L3+4:])) <= len(b)
}

func (s *Stack) hasPorts() bool {
	return s.L4 >= 0 && (s.Proto == protoTCP || s.Proto == protoUDP)
}

// VerifyChecksums reports whether the outer packet of a frame is TCP or UDP over IPv4 with present and correct
// checksums, that of the IPv4 header included (IBV_WC_IP_CSUM_OK). A UDP checksum of 0 counts as missing.
func VerifyChecksums(b []byte, h *Headers) bool {
	s := &h.Outer
	if s.IP != 4 || !s.hasPorts() || !s.whole(b) {
		return false
	}
	if fold(sum(0, b[s.L3:s.L3+int(b[s.L3]&15)*4])) != 0xffff {
		return false
	}
	if s.Proto == protoUDP {
		length := int(binary.BigEndian.Uint16(b[s.L4+4:]))
		if binary.BigEndian.Uint16(b[s.L4+6:]) == 0 || length != s.End-s.L4 {
			return false
		}
	}
	return fold(sum(s.pseudo(b), b[s.L4:s.End])) == 0xffff
}

// FillChecksums computes the checksum of the outer IPv4 header, and of a TCP or UDP packet over IPv4 or IPv6
// (IBV_SEND_IP_CSUM).
func FillChecksums(b []byte, h *Headers) {
	s := &h.Outer
	if s.IP == 4 {
		header := b[s.L3 : s.L3+int(b[s.L3]&15)*4]
		binary.BigEndian.PutUint16(header[10:], 0)
		binary.BigEndian.PutUint16(header[10:], ^fold(sum(0, header)))
	}
	if !s.hasPorts() || !s.whole(b) {
		return
	}
	at := s.L4 + 16
	if s.Proto == protoUDP {
		at = s.L4 + 6
	}
	binary.BigEndian.PutUint16(b[at:], 0)
	c := ^fold(sum(s.pseudo(b), b[s.L4:s.End]))
	if c == 0 && s.Proto == protoUDP {
		c = 0xffff // 0 would mean that there is none
	}
	binary.BigEndian.PutUint16(b[at:], c)
}

// FCS returns the frame check sequence of a frame, in wire order (IEEE 802.3, 3.2.9).
func FCS(b []byte) (fcs [FCSLen]byte) {
	binary.LittleEndian.PutUint32(fcs[:], crc32.ChecksumIEEE(b))
	return fcs
}
