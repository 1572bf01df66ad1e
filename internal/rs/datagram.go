package rs

import (
	"encoding/binary"
	"net/netip"
)

// Datagram sockets.
const (
	// DatagramMax is the length of the largest message of a UD QP, header and payload, in bytes (W-DS-02).
	DatagramMax = 2048
	// UDPTag is the first word of each message on the UDP socket (W-DS-04).
	UDPTag = 0x55555555
)

// Sizes of headers in bytes, by the family of the address.
const (
	HeaderLen4    = 8
	HeaderLen6    = 24
	udpHeaderLen4 = 16
	udpHeaderLen6 = 28
)

// UDPMax is the receive buffer size in bytes for the largest message by UDP.
const UDPMax = DatagramMax - HeaderLen4 + udpHeaderLen4

// HeaderLen returns the length in bytes of the header of each message of a UD QP.
func HeaderLen(a netip.Addr) int {
	if a.Is4() {
		return HeaderLen4
	}
	return HeaderLen6
}

// AppendHeader encodes the header with the sender's address (W-DS-03). from is IPv4 or IPv6, not 4-in-6.
func AppendHeader(b []byte, from netip.AddrPort) []byte {
	n := HeaderLen(from.Addr())
	b = append(b, version(from.Addr()), uint8(n))
	b = binary.BigEndian.AppendUint16(b, from.Port())
	if n == HeaderLen6 {
		b = append(b, 0, 0, 0, 0)
	}
	return append(b, from.Addr().AsSlice()...)
}

// ParseHeader splits a message into header and payload. ok is false if it has no valid header.
func ParseHeader(b []byte) (from netip.AddrPort, payload []byte, ok bool) {
	if len(b) < HeaderLen4 {
		return from, nil, false
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch {
	case b[0] == 4 && b[1] == HeaderLen4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), b[HeaderLen4:], true
	case b[0] == 6 && b[1] == HeaderLen6 && len(b) >= HeaderLen6:
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), port), b[HeaderLen6:], true
	}
	return from, nil, false
}

func version(a netip.Addr) uint8 {
	if a.Is4() {
		return 4
	}
	return 6
}

// AppendUDPHeader encodes the header of each message on the UDP socket: its kind, OpData or OpCtrl, and the
// sender's address and QP (W-DS-04).
func AppendUDPHeader(b []byte, op Op, qpn uint32, from netip.Addr) []byte {
	n := udpHeaderLen4
	if !from.Is4() {
		n = udpHeaderLen6
	}
	b = binary.BigEndian.AppendUint32(b, UDPTag)
	b = append(b, version(from), uint8(op), uint8(n), 0)
	b = binary.BigEndian.AppendUint32(b, qpn)
	return append(b, from.AsSlice()...)
}

// ParseUDPHeader splits a message from the UDP socket. ok is false for messages that must be dropped: those of
// another protocol, or of another family than the socket (W-DS-05). The address in the header is ignored, as it is
// wrong for IPv6.
func ParseUDPHeader(b []byte, v4 bool) (op Op, qpn uint32, payload []byte, ok bool) {
	want, v := udpHeaderLen6, uint8(6)
	if v4 {
		want, v = udpHeaderLen4, 4
	}
	if len(b) < want || binary.BigEndian.Uint32(b) != UDPTag || b[4] != v || int(b[6]) != want {
		return 0, 0, nil, false
	}
	if op = Op(b[5]); op != OpData && op != OpCtrl {
		return 0, 0, nil, false
	}
	return op, binary.BigEndian.Uint32(b[8:]) & 0xffffff, b[want:], true
}
