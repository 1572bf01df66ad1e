package raw

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync/atomic"
)

// SpecType is the type of a specification; its values are those of enum ibv_flow_spec_type.
type SpecType uint32

// The specifications that match, and the flag for inner headers.
const (
	SpecEth     SpecType = 0x20
	SpecIPv4    SpecType = 0x30
	SpecIPv6    SpecType = 0x31
	SpecIPv4Ext SpecType = 0x32
	SpecESP     SpecType = 0x34
	SpecTCP     SpecType = 0x40
	SpecUDP     SpecType = 0x41
	SpecVXLAN   SpecType = 0x50
	SpecGRE     SpecType = 0x51
	SpecMPLS    SpecType = 0x60
	SpecInner   SpecType = 0x100
)

// Fields are the values or the masks of a specification of any type. Numbers are in host order.
type Fields struct {
	DstMAC, SrcMAC    [6]byte
	EtherType, VLAN   uint16
	Src, Dst          [16]byte // IPv4: the first 4 bytes
	FlowLabel         uint32
	Proto, Class, TTL uint8 // next header, TOS or traffic class, hop limit
	Flags             uint8 // of an IPv4 fragment: flagDF, flagMF
	DstPort, SrcPort  uint16
	Number            uint32 // VNI, GRE key, MPLS label, SPI
	Number2           uint32 // ESP sequence number
	GREFlags, GREType uint16
}

// Bits of Fields.Flags (enum ib_ipv4_flags).
const (
	flagDF = 2
	flagMF = 4
)

// Spec is a specification that matches.
type Spec struct {
	Type      SpecType
	Val, Mask Fields
	place     int // SpecMPLS
}

// RuleType is the type of a rule; its values are those of enum ibv_flow_attr_type.
type RuleType uint32

// The types.
const (
	Normal RuleType = iota
	AllDefault
	MCDefault
	Sniffer
)

// RuleFlags are the flags of a rule; the values are those of enum ibv_flow_flags.
type RuleFlags uint32

// The flags.
const (
	AllowLoopback RuleFlags = 1 << 0 // also match frames that QPs of this device send
	DontTrap      RuleFlags = 1 << 1 // later rules also match the frame
	Egress        RuleFlags = 1 << 2 // match only frames that QPs of this device send
)

// Counter counts the matches of rules. It is safe for concurrent use.
type Counter struct{ Packets, Bytes atomic.Uint64 }

// Receiver takes the frames that rules steer to it: a QP or Datagrams.
type Receiver interface {
	// receive processes a frame. The device's mu is held.
	receive(d *Device, a *arrival, tag uint32)
}

// Rule steers frames to a receiver.
type Rule struct {
	Type     RuleType
	Priority uint16
	Flags    RuleFlags
	Specs    []Spec
	Drop     bool
	Tag      uint32
	Counters []*Counter
	ESP      *ESP // nil: none
	To       Receiver
}

// Prepare resolves the label positions of MPLS specifications, which depend on their place in the list.
func (r *Rule) Prepare() {
	outer, inner := mplsOuter, mplsInner
	for i := range r.Specs {
		s := &r.Specs[i]
		switch s.Type {
		case SpecIPv4, SpecIPv6, SpecIPv4Ext:
			outer = mplsIP
		case SpecUDP:
			outer, inner = mplsUDP, mplsUDP
		case SpecGRE:
			outer, inner = mplsGRE, mplsGRE
		case SpecVXLAN, SpecEth | SpecInner:
			inner = mplsInner
		case SpecIPv4 | SpecInner, SpecIPv6 | SpecInner, SpecIPv4Ext | SpecInner:
			inner = mplsInnerIP
		case SpecUDP | SpecInner:
			inner = mplsInnerUDP
		case SpecMPLS:
			s.place = outer
		case SpecMPLS | SpecInner:
			s.place = inner
		}
	}
}

// matches reports whether a frame has everything that the rule's specifications require.
func (r *Rule) matches(b []byte, h *Headers) bool {
	for i := range r.Specs {
		if !r.Specs[i].matches(b, h) {
			return false
		}
	}
	return true
}

func (s *Spec) matches(b []byte, h *Headers) bool {
	at := &h.Outer
	if s.Type&SpecInner != 0 {
		at = &h.Inner
	}
	v, m := &s.Val, &s.Mask
	switch s.Type &^ SpecInner {
	case SpecEth:
		return at.Eth >= 0 && sameBytes(b[at.Eth:], v.DstMAC[:], m.DstMAC[:]) && sameBytes(b[at.Eth+6:], v.SrcMAC[:],
			m.SrcMAC[:]) &&
			same(at.EtherType, v.EtherType, m.EtherType) &&
			(m.VLAN == 0 || at.VLANs > 0 && same(at.VLAN, v.VLAN, m.VLAN))
	case SpecIPv4, SpecIPv4Ext:
		return at.IP == 4 && s.matchesIPv4(b[at.L3:])
	case SpecIPv6:
		return at.IP == 6 && s.matchesIPv6(b[at.L3:], at.Proto)
	case SpecTCP:
		return at.L4 >= 0 && at.Proto == protoTCP && s.matchesPorts(b[at.L4:])
	case SpecUDP:
		return at.L4 >= 0 && at.Proto == protoUDP && s.matchesPorts(b[at.L4:])
	case SpecESP:
		return at.L4 >= 0 && at.Proto == protoESP && same(binary.BigEndian.Uint32(b[at.L4:]), v.Number, m.Number) &&
			same(binary.BigEndian.Uint32(b[at.L4+4:]), v.Number2, m.Number2)
	case SpecVXLAN:
		return h.Tunnel == VXLAN && same(h.VNI, v.Number, m.Number)
	case SpecGRE:
		return h.Tunnel == GRE && same(h.GREFlags, v.GREFlags, m.GREFlags) && same(h.GREProto, v.GREType, m.GREType) &&
			(m.Number == 0 || h.GREFlags&greKey != 0 && same(h.GREKey, v.Number, m.Number))
	case SpecMPLS:
		return h.hasLabel[s.place] && same(h.labels[s.place], v.Number, m.Number)
	}
	return false
}

func (s *Spec) matchesIPv4(ip []byte) bool {
	v, m := &s.Val, &s.Mask
	flags := uint8(0)
	if ip[6]&0x40 != 0 {
		flags |= flagDF
	}
	if ip[6]&0x20 != 0 {
		flags |= flagMF
	}
	return sameBytes(ip[12:], v.Src[:4], m.Src[:4]) && sameBytes(ip[16:], v.Dst[:4], m.Dst[:4]) && same(ip[9], v.Proto,
		m.Proto) &&
		same(ip[1], v.Class, m.Class) && same(ip[8], v.TTL, m.TTL) &&
		same(flags, v.Flags, m.Flags)
}

func (s *Spec) matchesIPv6(ip []byte, proto uint8) bool {
	v, m := &s.Val, &s.Mask
	first := binary.BigEndian.Uint32(ip)
	return sameBytes(ip[8:], v.Src[:], m.Src[:]) && sameBytes(ip[24:], v.Dst[:], m.Dst[:]) && same(proto, v.Proto,
		m.Proto) &&
		same(uint8(first>>20), v.Class, m.Class) && same(ip[7], v.TTL, m.TTL) &&
		same(first&0xfffff, v.FlowLabel, m.FlowLabel)
}

func (s *Spec) matchesPorts(l4 []byte) bool {
	return same(binary.BigEndian.Uint16(l4), s.Val.SrcPort, s.Mask.SrcPort) &&
		same(binary.BigEndian.Uint16(l4[2:]), s.Val.DstPort, s.Mask.DstPort)
}

func same[T uint8 | uint16 | uint32](got, val, mask T) bool { return (got^val)&mask == 0 }

func sameBytes(got, val, mask []byte) bool {
	got = got[:len(val)]
	if bytes.Equal(got, val) {
		return true
	}
	for i := range val {
		if (got[i]^val[i])&mask[i] != 0 {
			return false
		}
	}
	return true
}

// A Table holds the rules of a port. Sniffers see every frame first. Then a frame goes to the first matching rule
// without DontTrap: normal rules first, in the order of priority and age; then the multicast default, then the
// all-default, in the same order. A frame that matches no rule is lost.
type Table struct {
	rules    []*Rule // for received frames, in that order
	egress   []*Rule
	sniffers []*Rule
}

// Add inserts a rule after those of the same priority.
func (t *Table) Add(r *Rule) {
	list := t.list(r)
	i, _ := slices.BinarySearchFunc(*list, r, func(o, r *Rule) int {
		if o.rank() <= r.rank() {
			return -1
		}
		return 1
	})
	*list = slices.Insert(*list, i, r)
}

// Remove removes a rule.
func (t *Table) Remove(r *Rule) {
	list := t.list(r)
	*list = slices.DeleteFunc(*list, func(o *Rule) bool { return o == r })
}

func (t *Table) list(r *Rule) *[]*Rule {
	switch {
	case r.Type == Sniffer:
		return &t.sniffers
	case r.Flags&Egress != 0:
		return &t.egress
	}
	return &t.rules
}

// rank returns the position of the rule's type in the order.
func (r *Rule) rank() int {
	kind := 0
	switch r.Type {
	case MCDefault:
		kind = 1
	case AllDefault:
		kind = 2
	case Normal, Sniffer:
	}
	return kind<<16 | int(r.Priority)
}

// hit counts a frame of n bytes that a rule matched.
func (r *Rule) hit(n int) {
	for _, c := range r.Counters {
		c.Packets.Add(1)
		c.Bytes.Add(uint64(n))
	}
}

// handler takes what rules match.
type handler interface {
	deliver(r *Rule)
	// change applies the ESP action of a rule to the frame, and reports whether it has succeeded.
	change(r *Rule) bool
}

// receive passes a frame to the matching rules. looped: a QP of this device sent the frame. After the action of a rule
// that is not the last one, the following rules see the changed frame.
func (t *Table) receive(a *arrival, looped bool, to handler) (taken bool) {
	for _, r := range t.rules {
		if looped && r.Flags&AllowLoopback == 0 || r.Type == MCDefault && a.b[0]&1 == 0 || !r.matches(a.b, &a.h) {
			continue
		}
		r.hit(len(a.b))
		if r.ESP != nil && !to.change(r) {
			return true
		}
		if !r.Drop {
			to.deliver(r)
		}
		if r.Flags&DontTrap == 0 {
			return true
		}
		taken = true
	}
	return taken
}

// sniff passes a frame to all sniffers.
func (t *Table) sniff(a *arrival, to handler) {
	for _, r := range t.sniffers {
		r.hit(len(a.b))
		if !r.Drop {
			to.deliver(r)
		}
	}
}

// send applies the egress rules to a frame that a QP of this device sends, and reports whether it may be sent.
func (t *Table) send(a *arrival, to handler) bool {
	for _, r := range t.egress {
		if !r.matches(a.b, &a.h) {
			continue
		}
		r.hit(len(a.b))
		if r.Drop || r.ESP != nil && !to.change(r) {
			return false
		}
		if r.Flags&DontTrap == 0 {
			break
		}
	}
	return true
}
