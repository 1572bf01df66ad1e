package raw

import "encoding/binary"

// ipoibLen is the length of the header of IP over InfiniBand: an EtherType and two reserved bytes (RFC 4391).
const ipoibLen = 4

// parseIPoIB finds the layers of a message of IP over InfiniBand.
func parseIPoIB(b []byte, h *Headers) bool {
	if len(b) < ipoibLen {
		return false
	}
	*h = Headers{Outer: noStack, Inner: noStack}
	s := &h.Outer
	s.EtherType = binary.BigEndian.Uint16(b)
	if s.EtherType == typeIPv4 || s.EtherType == typeIPv6 {
		h.network(b, ipoibLen, s, s.EtherType, mplsOuter)
	}
	return s.IP != 0
}

// FillIPoIB computes the checksums of a message of IP over InfiniBand (IBV_SEND_IP_CSUM on UD). Other messages stay as
// they are.
func FillIPoIB(b []byte) {
	var h Headers
	if parseIPoIB(b, &h) {
		FillChecksums(b, &h)
	}
}

// VerifyIPoIB is VerifyChecksums for a message of IP over InfiniBand.
func VerifyIPoIB(b []byte) bool {
	var h Headers
	return parseIPoIB(b, &h) && VerifyChecksums(b, &h)
}
