package raw

import (
	"encoding/binary"
	"errors"

	"github.com/verbena-rdma/verbena/internal/transport"
)

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

var errIPoIBHeader = errors.New(
	"the header of a TSO request on UD must be IP over InfiniBand, IPv4 or IPv6, and TCP, and end with the TCP header",
)

// StartIPoIB corrects the IP length in the header of a TSO request on UD, or returns an error if it has no TCP.
func StartIPoIB(header []byte) error {
	if len(header) > ipoibLen {
		putIPLength(header, ipoibLen, binary.BigEndian.Uint16(header))
	}
	var h Headers
	if !parseIPoIB(header, &h) || !h.Outer.endsWithTCP(header) {
		return errIPoIBHeader
	}
	return nil
}

// SegmentIPoIB completes a message that begins with a header that StartIPoIB has accepted.
func SegmentIPoIB(b []byte, g transport.Segment) {
	putIPLength(b, ipoibLen, binary.BigEndian.Uint16(b))
	var h Headers
	parseIPoIB(b, &h)
	h.Outer.number(b, g)
	FillChecksums(b, &h)
}
