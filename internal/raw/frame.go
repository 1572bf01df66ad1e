package raw

import "encoding/binary"

// EtherTypes and protocol numbers that the parser supports.
const (
	typeIPv4  = 0x0800
	typeIPv6  = 0x86dd
	typeMPLS  = 0x8847
	typeMPLSm = 0x8848 // multicast
	typeTEB   = 0x6558 // Ethernet in GRE
	typeCVLAN = 0x8100
	typeSVLAN = 0x88a8
	typeQinQ  = 0x9100

	protoHopByHop = 0
	protoIPv4     = 4
	protoTCP      = 6
	protoUDP      = 17
	protoIPv6     = 41
	protoRouting  = 43
	protoFragment = 44
	protoGRE      = 47
	protoESP      = 50
	protoAH       = 51
	protoNoNext   = 59
	protoDestOpts = 60
	protoMPLS     = 137

	portVXLAN = 4789
	portMPLS  = 6635

	ethLen    = 14
	vlanLen   = 4
	maxVLANs  = 4
	maxLabels = 16
	maxExts   = 8

	// FCSLen is the length of the frame check sequence.
	FCSLen = 4
)

// Tunnel is the protocol that carries the inner headers of a frame.
type Tunnel uint8

// The tunnels. Headers below a stack of MPLS labels are inner headers too.
const (
	NoTunnel Tunnel = iota
	VXLAN
	GRE
	MPLS
	IPinIP
)

// Stack is the layers of a frame, outer or inner, as offsets into it. A missing layer has offset -1.
type Stack struct {
	Eth       int
	VLANs     int    // number of tags
	VLAN      uint16 // the first tag
	EtherType uint16 // after the last tag
	L3        int
	IP        uint8 // 4, 6 or 0
	Proto     uint8 // protocol above IP, after extension headers
	Frag      bool  // a fragment: L4 is missing
	L4        int   // TCP, UDP or ESP, according to Proto
	End       int   // end of the IP packet
}

// The possible places of a stack of MPLS labels.
const (
	mplsOuter = iota // after the outer Ethernet header
	mplsIP           // in IP
	mplsUDP
	mplsGRE
	mplsInner // after the inner Ethernet header
	mplsInnerIP
	mplsInnerUDP
	mplsPlaces
)

// Headers is the result of Parse.
type Headers struct {
	Outer, Inner Stack
	Tunnel       Tunnel
	VNI          uint32 // VXLAN, 24 bits
	GREFlags     uint16
	GREProto     uint16
	GREKey       uint32 // valid if GREFlags has greKey
	labels       [mplsPlaces]uint32
	hasLabel     [mplsPlaces]bool
}

// Flags of a GRE header.
const (
	greChecksum = 0x8000
	greKey      = 0x2000
	greSequence = 0x1000
	greVersion  = 0x0007
)

var noStack = Stack{Eth: -1, L3: -1, L4: -1}

// Parse finds the layers of a frame that are supported and complete. It returns false if there is no complete
// Ethernet header.
func Parse(b []byte, h *Headers) bool {
	*h = Headers{Outer: noStack, Inner: noStack}
	if len(b) < ethLen {
		return false
	}
	h.ethernet(b, 0, &h.Outer, mplsOuter)
	return true
}

// ethernet parses an Ethernet header and the layers above it.
func (h *Headers) ethernet(b []byte, at int, s *Stack, labels int) {
	if len(b) < at+ethLen {
		return
	}
	s.Eth, s.EtherType = at, binary.BigEndian.Uint16(b[at+12:])
	for at += ethLen; isVLAN(s.EtherType) && s.VLANs < maxVLANs && len(b) >= at+vlanLen; at += vlanLen {
		if s.VLANs == 0 {
			s.VLAN = binary.BigEndian.Uint16(b[at:])
		}
		s.VLANs++
		s.EtherType = binary.BigEndian.Uint16(b[at+2:])
	}
	h.network(b, at, s, s.EtherType, labels)
}

func isVLAN(t uint16) bool { return t == typeCVLAN || t == typeSVLAN || t == typeQinQ }

// network parses the layer of an EtherType.
func (h *Headers) network(b []byte, at int, s *Stack, etherType uint16, labels int) {
	switch etherType {
	case typeIPv4:
		h.ipv4(b, at, s)
	case typeIPv6:
		h.ipv6(b, at, s)
	case typeMPLS, typeMPLSm:
		h.mpls(b, at, labels)
	}
}

func (h *Headers) ipv4(b []byte, at int, s *Stack) {
	if len(b) < at+20 || b[at]>>4 != 4 {
		return
	}
	header, total := int(b[at]&15)*4, int(binary.BigEndian.Uint16(b[at+2:]))
	if header < 20 || total < header || len(b) < at+header {
		return
	}
	s.L3, s.IP, s.Proto, s.End = at, 4, b[at+9], min(at+total, len(b))
	s.Frag = binary.BigEndian.Uint16(b[at+6:])&0x3fff != 0
	if !s.Frag {
		h.transport(b, at+header, s)
	}
}

func (h *Headers) ipv6(b []byte, at int, s *Stack) {
	if len(b) < at+40 || b[at]>>4 != 6 {
		return
	}
	s.L3, s.IP, s.End = at, 6, min(at+40+int(binary.BigEndian.Uint16(b[at+4:])), len(b))
	next := b[at+6]
	at += 40
	for range maxExts {
		s.Proto = next
		n := extLen(next, b[at:s.End])
		if n < 0 {
			break
		}
		if next == protoFragment && binary.BigEndian.Uint16(b[at+2:])&0xfff9 != 0 {
			s.Frag = true
		}
		next = b[at]
		at += n
	}
	if !s.Frag && extLen(next, b[at:s.End]) < 0 {
		s.Proto = next
		h.transport(b, at, s)
	}
}

// extLen returns the length of an extension header; -1 if proto is not one, or the header is incomplete.
func extLen(proto uint8, b []byte) int {
	n := 8
	switch proto {
	case protoHopByHop, protoRouting, protoDestOpts:
		if len(b) >= 8 {
			n = 8 + int(b[1])*8
		}
	case protoAH:
		if len(b) >= 8 {
			n = 8 + int(b[1])*4
		}
	case protoFragment:
	default:
		return -1
	}
	if len(b) < n {
		return -1
	}
	return n
}

// l4Len returns the minimum length of a header.
func l4Len(proto uint8) int {
	if proto == protoTCP {
		return 20
	}
	return 8 // UDP, ESP
}

// transport parses the payload of an IP packet.
func (h *Headers) transport(b []byte, at int, s *Stack) {
	outer := s == &h.Outer && h.Tunnel == NoTunnel
	switch s.Proto {
	case protoTCP, protoUDP, protoESP:
		if s.End < at+l4Len(s.Proto) {
			return
		}
		s.L4 = at
		switch {
		case s.Proto != protoUDP:
		case outer:
			h.overUDP(b[:s.End], at)
		case s == &h.Inner && binary.BigEndian.Uint16(b[at+2:]) == portMPLS:
			h.label(b[:s.End], at+8, mplsInnerUDP)
		}
	case protoGRE:
		if outer {
			h.gre(b[:s.End], at)
		}
	case protoMPLS:
		if outer {
			h.mpls(b[:s.End], at, mplsIP)
		} else if s == &h.Inner {
			h.label(b[:s.End], at, mplsInnerIP)
		}
	case protoIPv4, protoIPv6:
		if outer {
			h.Tunnel = IPinIP
			h.byVersion(b[:s.End], at, &h.Inner)
		}
	}
}

// overUDP looks for a tunnel in a datagram.
func (h *Headers) overUDP(b []byte, at int) {
	switch binary.BigEndian.Uint16(b[at+2:]) {
	case portVXLAN:
		at += 8
		if len(b) >= at+8 && b[at]&0x08 != 0 {
			h.Tunnel, h.VNI = VXLAN, binary.BigEndian.Uint32(b[at+4:])>>8
			h.ethernet(b, at+8, &h.Inner, mplsInner)
		}
	case portMPLS:
		h.mpls(b, at+8, mplsUDP)
	}
}

func (h *Headers) gre(b []byte, at int) {
	if len(b) < at+4 {
		return
	}
	flags, proto := binary.BigEndian.Uint16(b[at:]), binary.BigEndian.Uint16(b[at+2:])
	at += 4
	if flags&greVersion != 0 {
		return
	}
	if flags&greChecksum != 0 {
		at += 4
	}
	key := uint32(0)
	if flags&greKey != 0 {
		if len(b) < at+4 {
			return
		}
		key = binary.BigEndian.Uint32(b[at:])
		at += 4
	}
	if flags&greSequence != 0 {
		at += 4
	}
	if len(b) < at {
		return
	}
	h.Tunnel, h.GREFlags, h.GREProto, h.GREKey = GRE, flags, proto, key
	if proto == typeTEB {
		h.ethernet(b, at, &h.Inner, mplsInner)
	} else {
		h.network(b, at, &h.Inner, proto, mplsGRE)
	}
}

// label records the first label of a stack, without the layers below.
func (h *Headers) label(b []byte, at, place int) {
	if len(b) >= at+4 {
		h.labels[place], h.hasLabel[place] = binary.BigEndian.Uint32(b[at:]), true
	}
}

// mpls parses a stack of labels and the layer below, whose kind only its first bits show.
func (h *Headers) mpls(b []byte, at, place int) {
	for n := 0; n < maxLabels && len(b) >= at+4; n++ {
		label := binary.BigEndian.Uint32(b[at:])
		if n == 0 {
			h.labels[place], h.hasLabel[place] = label, true
			if h.Tunnel == NoTunnel {
				h.Tunnel = MPLS
			}
		}
		at += 4
		if label&0x100 != 0 { // the bottom of the stack
			h.byVersion(b, at, &h.Inner)
			return
		}
	}
}

// byVersion parses an IP packet of either version.
func (h *Headers) byVersion(b []byte, at int, s *Stack) {
	if len(b) <= at {
		return
	}
	switch b[at] >> 4 {
	case 4:
		h.ipv4(b, at, s)
	case 6:
		h.ipv6(b, at, s)
	}
}
