package verbs

import (
	"encoding/binary"
	"fmt"
)

// The C form of a flow rule: struct ibv_flow_attr, 20 bytes, followed by the specifications. Header fields of packets
// are big endian, other fields have the byte order of the machine. Padding is 0.

const flowAttrLen = 20

// flowSizes holds the sizes of the C structures (LP64).
var flowSizes = map[FlowSpecType]int{
	FlowSpecTypeEth: 40, FlowSpecTypeIPv4: 24, FlowSpecTypeIPv6: 88, FlowSpecTypeIPv4Ext: 32, FlowSpecTypeESP: 24,
	FlowSpecTypeTCP: 16,
	FlowSpecTypeUDP: 16, FlowSpecTypeVXLANTunnel: 16, FlowSpecTypeGRE: 24, FlowSpecTypeMPLS: 16, FlowSpecTypeActionTag: 12,
	FlowSpecTypeActionDrop: 8, FlowSpecTypeActionHandle: 16, FlowSpecTypeActionCount: 16,
}

// FlowHandles returns the objects that the pointers in C specifications stand for; nil for an unknown handle.
type FlowHandles interface {
	Counters(handle uint64) *Counters
	Action(handle uint64) *FlowAction
}

// ParseFlowAttr parses a rule in its C form (struct ibv_flow_attr followed by the specifications). handles may be nil
// if no specification names counters or an action. EINVAL for a comp_mask other than 0, inconsistent sizes and numbers,
// and unknown types and handles. CreateFlow checks the meaning of the rule.
func ParseFlowAttr(b []byte, handles FlowHandles) (*FlowAttr, error) {
	const op = "parse_flow_attr"
	if len(b) < flowAttrLen {
		return nil, newError(op, "", EINVAL, "%d bytes: must be %d or more", len(b), flowAttrLen)
	}
	n := binary.NativeEndian
	a := &FlowAttr{
		Type: FlowAttrType(n.Uint32(b[4:])), Priority: n.Uint16(b[10:]), Port: b[13], Flags: FlowFlags(n.Uint32(b[16:])),
	}
	size, count := int(n.Uint16(b[8:])), int(b[12])
	if mask := n.Uint32(b); mask != 0 {
		return nil, newError(op, "", EINVAL, "comp_mask %#x: must be 0", mask)
	}
	if size != len(b) {
		return nil, newError(op, "", EINVAL, "size %d: must be %d, the number of bytes given", size, len(b))
	}
	rest := b[flowAttrLen:]
	for i := range count {
		s, size, err := parseFlowSpec(rest, handles)
		if err != nil {
			return nil, newError(op, "", EINVAL, "specification %d: %v", i, err)
		}
		a.Specs = append(a.Specs, s)
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return nil, newError(op, "", EINVAL, "%d bytes follow %d specifications: must be 0", len(rest), count)
	}
	return a, nil
}

// parseFlowSpec parses one specification and returns its length in bytes.
func parseFlowSpec(b []byte, handles FlowHandles) (FlowSpec, int, error) {
	if len(b) < 8 {
		return nil, 0, fmt.Errorf("%d bytes: must be 8 or more", len(b))
	}
	t, size := FlowSpecType(binary.NativeEndian.Uint32(b)), int(binary.NativeEndian.Uint16(b[4:]))
	base := t
	if t < FlowSpecTypeActionTag {
		base &^= FlowSpecInner
	}
	want, ok := flowSizes[base]
	switch {
	case !ok || base != t && (base == FlowSpecTypeVXLANTunnel || base == FlowSpecTypeGRE):
		return nil, 0, fmt.Errorf("unknown specification type %v", t)
	case size != want:
		return nil, 0, fmt.Errorf("%v: size %d: must be %d", t, size, want)
	case len(b) < size:
		return nil, 0, fmt.Errorf("%v: %d bytes: must be %d or more", t, len(b), size)
	}
	b = b[:size]
	if t >= FlowSpecTypeActionTag {
		s, err := parseFlowAction(t, b, handles)
		return s, size, err
	}
	return parseFlowFilters(base, base != t, b), size, nil
}

func parseFlowAction(t FlowSpecType, b []byte, handles FlowHandles) (FlowSpec, error) {
	switch t {
	case FlowSpecTypeActionTag:
		return FlowSpecActionTag{binary.NativeEndian.Uint32(b[8:])}, nil
	case FlowSpecTypeActionDrop:
		return FlowSpecActionDrop{}, nil
	}
	handle := binary.NativeEndian.Uint64(b[8:])
	if handles == nil {
		return nil, fmt.Errorf("%v: unknown handle %#x", t, handle)
	}
	if t == FlowSpecTypeActionHandle {
		if a := handles.Action(handle); a != nil {
			return FlowSpecActionHandle{a}, nil
		}
	} else if c := handles.Counters(handle); c != nil {
		return FlowSpecActionCount{c}, nil
	}
	return nil, fmt.Errorf("%v: unknown handle %#x", t, handle)
}

// parseFlowFilters parses the value and the mask of a specification.
func parseFlowFilters(t FlowSpecType, in bool, b []byte) FlowSpec {
	switch t {
	case FlowSpecTypeEth:
		return FlowSpecEth{in, parseEthFilter(b[6:]), parseEthFilter(b[22:])}
	case FlowSpecTypeIPv4:
		return FlowSpecIPv4{in, parseIPv4Filter(b[8:]), parseIPv4Filter(b[16:])}
	case FlowSpecTypeIPv4Ext:
		return FlowSpecIPv4Ext{in, parseIPv4ExtFilter(b[8:]), parseIPv4ExtFilter(b[20:])}
	case FlowSpecTypeIPv6:
		return FlowSpecIPv6{in, parseIPv6Filter(b[8:]), parseIPv6Filter(b[48:])}
	case FlowSpecTypeESP:
		be := binary.BigEndian
		return FlowSpecESP{in, FlowESPFilter{be.Uint32(b[8:]), be.Uint32(b[12:])},
			FlowESPFilter{be.Uint32(b[16:]), be.Uint32(b[20:])}}
	case FlowSpecTypeTCP:
		return FlowSpecTCP{in, parsePortFilter(b[6:]), parsePortFilter(b[10:])}
	case FlowSpecTypeUDP:
		return FlowSpecUDP{in, parsePortFilter(b[6:]), parsePortFilter(b[10:])}
	case FlowSpecTypeVXLANTunnel:
		return FlowSpecVXLAN{FlowTunnelFilter{binary.BigEndian.Uint32(b[8:])},
			FlowTunnelFilter{binary.BigEndian.Uint32(b[12:])}}
	case FlowSpecTypeGRE:
		return FlowSpecGRE{parseGREFilter(b[8:]), parseGREFilter(b[16:])}
	default:
		return FlowSpecMPLS{in, FlowMPLSFilter{binary.BigEndian.Uint32(b[8:])},
			FlowMPLSFilter{binary.BigEndian.Uint32(b[12:])}}
	}
}

func parseEthFilter(b []byte) FlowEthFilter {
	return FlowEthFilter{[6]byte(b), [6]byte(b[6:]), binary.BigEndian.Uint16(b[12:]), binary.BigEndian.Uint16(b[14:])}
}

func parseIPv4Filter(b []byte) FlowIPv4Filter { return FlowIPv4Filter{[4]byte(b), [4]byte(b[4:])} }

func parseIPv4ExtFilter(b []byte) FlowIPv4ExtFilter {
	return FlowIPv4ExtFilter{[4]byte(b), [4]byte(b[4:]), b[8], b[9], b[10], b[11]}
}

func parseIPv6Filter(b []byte) FlowIPv6Filter {
	return FlowIPv6Filter{[16]byte(b), [16]byte(b[16:]), binary.BigEndian.Uint32(b[32:]), b[36], b[37], b[38]}
}

func parsePortFilter(b []byte) FlowPortFilter {
	return FlowPortFilter{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])}
}

func parseGREFilter(b []byte) FlowGREFilter {
	return FlowGREFilter{binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), binary.BigEndian.Uint32(b[4:])}
}

// AppendFlowAttr appends a rule in its C form to b (struct ibv_flow_attr). handle returns the numbers of the objects
// that specifications name, a *Counters or a *FlowAction; it may be nil if there are none. EINVAL for more than 255
// specifications, or for a specification type of another package.
func AppendFlowAttr(b []byte, a *FlowAttr, handle func(object any) uint64) ([]byte, error) {
	const op = "append_flow_attr"
	if len(a.Specs) > 255 {
		return b, newError(op, "", EINVAL, "%d specifications: must be 0 to 255", len(a.Specs))
	}
	n, at := binary.NativeEndian, len(b)
	b = append(b, make([]byte, flowAttrLen)...)
	for i, s := range a.Specs {
		if s == nil || !known(s) {
			return b[:at], newError(op, "", EINVAL, "specification %d: unknown type %T", i, s)
		}
		from := len(b)
		b = append(b, make([]byte, flowSizes[flowBase(s)])...)
		putFlowSpec(b[from:], s, handle)
	}
	h := b[at:]
	n.PutUint32(h[4:], uint32(a.Type))
	n.PutUint16(h[8:], uint16(len(h))) // 255 * 88 + 20 at most
	n.PutUint16(h[10:], a.Priority)
	h[12], h[13] = byte(len(a.Specs)), a.Port
	n.PutUint32(h[16:], uint32(a.Flags))
	return b, nil
}

// flowBase returns a specification's type without FlowSpecInner.
func flowBase(s FlowSpec) FlowSpecType {
	if t := s.Type(); t >= FlowSpecTypeActionTag {
		return t
	}
	return s.Type() &^ FlowSpecInner
}

func putFlowSpec(b []byte, s FlowSpec, handle func(object any) uint64) {
	binary.NativeEndian.PutUint32(b, uint32(s.Type()))
	binary.NativeEndian.PutUint16(b[4:], uint16(len(b)))
	be := binary.BigEndian
	switch s := s.(type) {
	case FlowSpecEth:
		putEthFilter(b[6:], &s.Val)
		putEthFilter(b[22:], &s.Mask)
	case FlowSpecIPv4:
		putIPv4(b[8:], s.Val.SrcIP, s.Val.DstIP)
		putIPv4(b[16:], s.Mask.SrcIP, s.Mask.DstIP)
	case FlowSpecIPv4Ext:
		putIPv4Ext(b[8:], &s.Val)
		putIPv4Ext(b[20:], &s.Mask)
	case FlowSpecIPv6:
		putIPv6(b[8:], &s.Val)
		putIPv6(b[48:], &s.Mask)
	case FlowSpecESP:
		put32(b[8:], s.Val.SPI, s.Val.Seq, s.Mask.SPI, s.Mask.Seq)
	case FlowSpecTCP:
		putPorts(b[6:], s.Val, s.Mask)
	case FlowSpecUDP:
		putPorts(b[6:], s.Val, s.Mask)
	case FlowSpecVXLAN:
		put32(b[8:], s.Val.TunnelID, s.Mask.TunnelID)
	case FlowSpecGRE:
		put32(b[8:], uint32(s.Val.CKSRes0Ver)<<16|uint32(s.Val.Protocol), s.Val.Key,
			uint32(s.Mask.CKSRes0Ver)<<16|uint32(s.Mask.Protocol), s.Mask.Key)
	case FlowSpecMPLS:
		be.PutUint32(b[8:], s.Val.Label)
		be.PutUint32(b[12:], s.Mask.Label)
	case FlowSpecActionTag:
		binary.NativeEndian.PutUint32(b[8:], s.TagID)
	case FlowSpecActionHandle:
		putHandle(b, s.Action, handle)
	case FlowSpecActionCount:
		putHandle(b, s.Counters, handle)
	}
}

func putHandle(b []byte, object any, handle func(object any) uint64) {
	if handle != nil {
		binary.NativeEndian.PutUint64(b[8:], handle(object))
	}
}

func put32(b []byte, v ...uint32) {
	for i, x := range v {
		binary.BigEndian.PutUint32(b[i*4:], x)
	}
}

func putEthFilter(b []byte, f *FlowEthFilter) {
	copy(b, f.DstMAC[:])
	copy(b[6:], f.SrcMAC[:])
	binary.BigEndian.PutUint16(b[12:], f.EtherType)
	binary.BigEndian.PutUint16(b[14:], f.VLANTag)
}

func putIPv4(b []byte, src, dst [4]byte) {
	copy(b, src[:])
	copy(b[4:], dst[:])
}

func putIPv4Ext(b []byte, f *FlowIPv4ExtFilter) {
	putIPv4(b, f.SrcIP, f.DstIP)
	b[8], b[9], b[10], b[11] = f.Proto, f.TOS, f.TTL, f.Flags
}

func putIPv6(b []byte, f *FlowIPv6Filter) {
	copy(b, f.SrcIP[:])
	copy(b[16:], f.DstIP[:])
	binary.BigEndian.PutUint32(b[32:], f.FlowLabel)
	b[36], b[37], b[38] = f.NextHdr, f.TrafficClass, f.HopLimit
}

func putPorts(b []byte, val, mask FlowPortFilter) {
	be := binary.BigEndian
	be.PutUint16(b, val.DstPort)
	be.PutUint16(b[2:], val.SrcPort)
	be.PutUint16(b[4:], mask.DstPort)
	be.PutUint16(b[6:], mask.SrcPort)
}
