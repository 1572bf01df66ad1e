package verbs

// FlowSpecType is the type of a flow specification, combined with the flag FlowSpecInner (enum ibv_flow_spec_type).
type FlowSpecType uint32

// The types (IBV_FLOW_SPEC_*).
const (
	FlowSpecTypeEth          FlowSpecType = 0x20
	FlowSpecTypeIPv4         FlowSpecType = 0x30
	FlowSpecTypeIPv6         FlowSpecType = 0x31
	FlowSpecTypeIPv4Ext      FlowSpecType = 0x32
	FlowSpecTypeESP          FlowSpecType = 0x34
	FlowSpecTypeTCP          FlowSpecType = 0x40
	FlowSpecTypeUDP          FlowSpecType = 0x41
	FlowSpecTypeVXLANTunnel  FlowSpecType = 0x50
	FlowSpecTypeGRE          FlowSpecType = 0x51
	FlowSpecTypeMPLS         FlowSpecType = 0x60
	FlowSpecInner            FlowSpecType = 0x100 // flag: the headers inside of a tunnel
	FlowSpecTypeActionTag    FlowSpecType = 0x1000
	FlowSpecTypeActionDrop   FlowSpecType = 0x1001
	FlowSpecTypeActionHandle FlowSpecType = 0x1002
	FlowSpecTypeActionCount  FlowSpecType = 0x1003
)

var flowSpecNames = map[FlowSpecType]string{
	FlowSpecTypeEth: "ETH", FlowSpecTypeIPv4: "IPV4", FlowSpecTypeIPv6: "IPV6", FlowSpecTypeIPv4Ext: "IPV4_EXT",
	FlowSpecTypeESP: "ESP",
	FlowSpecTypeTCP: "TCP", FlowSpecTypeUDP: "UDP", FlowSpecTypeVXLANTunnel: "VXLAN_TUNNEL", FlowSpecTypeGRE: "GRE",
	FlowSpecTypeMPLS: "MPLS",
	FlowSpecInner:    "INNER", FlowSpecTypeActionTag: "ACTION_TAG", FlowSpecTypeActionDrop: "ACTION_DROP",
	FlowSpecTypeActionHandle: "ACTION_HANDLE",
	FlowSpecTypeActionCount:  "ACTION_COUNT",
}

// String returns the name without IBV_FLOW_SPEC_, with the prefix INNER_ if FlowSpecInner is set.
func (t FlowSpecType) String() string {
	if name := flowSpecNames[t]; name != "" {
		return name
	}
	if name := flowSpecNames[t&^FlowSpecInner]; name != "" && t < FlowSpecTypeActionTag {
		return "INNER_" + name
	}
	return nameOf("FlowSpecType", nil, int64(t))
}

// FlowSpec is a part of a flow rule: a condition on frames, or an action (struct ibv_flow_spec). It is implemented by
// the types of this package whose names begin with FlowSpec.
//
// A condition has Val and Mask. It matches frames that have its header and agree with Val in each bit that is 1 in
// Mask. Numbers are in host byte order here and big endian in the frame. Inner selects the headers inside of a
// tunnel.
type FlowSpec interface {
	// Type returns the type, with FlowSpecInner if set.
	Type() FlowSpecType
}

// FlowSpecEth matches Ethernet headers (struct ibv_flow_spec_eth).
type FlowSpecEth struct {
	Inner     bool
	Val, Mask FlowEthFilter
}

// FlowEthFilter holds the fields of FlowSpecEth (struct ibv_flow_eth_filter).
type FlowEthFilter struct {
	DstMAC, SrcMAC [6]byte
	EtherType      uint16 // that after the last VLAN tag
	VLANTag        uint16 // the first tag: priority 3 bits, CFI 1 bit, ID 12 bits
}

// FlowSpecIPv4 matches IPv4 headers (struct ibv_flow_spec_ipv4).
type FlowSpecIPv4 struct {
	Inner     bool
	Val, Mask FlowIPv4Filter
}

// FlowIPv4Filter holds the fields of FlowSpecIPv4 (struct ibv_flow_ipv4_filter).
type FlowIPv4Filter struct{ SrcIP, DstIP [4]byte }

// FlowSpecIPv4Ext matches IPv4 headers with more of their fields (struct ibv_flow_spec_ipv4_ext).
type FlowSpecIPv4Ext struct {
	Inner     bool
	Val, Mask FlowIPv4ExtFilter
}

// FlowIPv4ExtFilter holds the fields of FlowSpecIPv4Ext (struct ibv_flow_ipv4_ext_filter). In Flags, 3 bits, bit 1
// stands for "do not fragment" and bit 2 for "more fragments", as in the Linux kernel.
type FlowIPv4ExtFilter struct {
	SrcIP, DstIP           [4]byte
	Proto, TOS, TTL, Flags uint8
}

// FlowSpecIPv6 matches IPv6 headers (struct ibv_flow_spec_ipv6).
type FlowSpecIPv6 struct {
	Inner     bool
	Val, Mask FlowIPv6Filter
}

// FlowIPv6Filter holds the fields of FlowSpecIPv6 (struct ibv_flow_ipv6_filter).
type FlowIPv6Filter struct {
	SrcIP, DstIP [16]byte
	FlowLabel    uint32 // 20 bits
	NextHdr      uint8  // the protocol after extension headers
	TrafficClass uint8
	HopLimit     uint8
}

// FlowSpecESP matches ESP headers (struct ibv_flow_spec_esp).
type FlowSpecESP struct {
	Inner     bool
	Val, Mask FlowESPFilter
}

// FlowESPFilter holds the fields of FlowSpecESP (struct ibv_flow_esp_filter).
type FlowESPFilter struct{ SPI, Seq uint32 }

// FlowSpecTCP matches TCP headers (struct ibv_flow_spec_tcp_udp with IBV_FLOW_SPEC_TCP). Fragments have none.
type FlowSpecTCP struct {
	Inner     bool
	Val, Mask FlowPortFilter
}

// FlowSpecUDP matches UDP headers (struct ibv_flow_spec_tcp_udp with IBV_FLOW_SPEC_UDP). Fragments have none.
type FlowSpecUDP struct {
	Inner     bool
	Val, Mask FlowPortFilter
}

// FlowPortFilter holds the fields of FlowSpecTCP and FlowSpecUDP (struct ibv_flow_tcp_udp_filter).
type FlowPortFilter struct{ DstPort, SrcPort uint16 }

// FlowSpecVXLAN matches VXLAN tunnels, to UDP port 4789 (struct ibv_flow_spec_tunnel).
type FlowSpecVXLAN struct{ Val, Mask FlowTunnelFilter }

// FlowTunnelFilter holds the field of FlowSpecVXLAN (struct ibv_flow_tunnel_filter).
type FlowTunnelFilter struct {
	TunnelID uint32 // the network identifier, 24 bits
}

// FlowSpecGRE matches GRE tunnels (struct ibv_flow_spec_gre).
type FlowSpecGRE struct{ Val, Mask FlowGREFilter }

// FlowGREFilter holds the fields of FlowSpecGRE (struct ibv_flow_gre_filter).
type FlowGREFilter struct {
	CKSRes0Ver uint16 // the first two bytes: checksum, key and sequence bits from the top, the version in the last 3 bits
	Protocol   uint16
	Key        uint32 // with a mask other than 0 only frames with a key match
}

// FlowSpecMPLS matches the first label of an MPLS stack (struct ibv_flow_spec_mpls). The last specification of an outer
// header before it in FlowAttr.Specs selects the stack: FlowSpecGRE the one in GRE, FlowSpecUDP the one in UDP (port
// 6635), an IP specification the one in IP; without them it is the one after the Ethernet header. With Inner it is the
// stack in the last of the inner headers of the specifications before it, which must be in the order of the headers;
// without any, the stack in GRE or UDP if that specification is before it, otherwise the one after the inner Ethernet
// header.
type FlowSpecMPLS struct {
	Inner     bool
	Val, Mask FlowMPLSFilter
}

// FlowMPLSFilter holds the field of FlowSpecMPLS (struct ibv_flow_mpls_filter).
type FlowMPLSFilter struct {
	Label uint32 // the stack entry; from the top: 20 bits of label, 3 of class, 1 of bottom, 8 of TTL
}

// FlowSpecActionTag sets WC.FlowTag in the completions of frames (struct ibv_flow_spec_action_tag).
type FlowSpecActionTag struct{ TagID uint32 }

// FlowSpecActionDrop drops frames (struct ibv_flow_spec_action_drop).
type FlowSpecActionDrop struct{}

// FlowSpecActionHandle runs an existing action (struct ibv_flow_spec_action_handle).
type FlowSpecActionHandle struct{ Action *FlowAction }

// FlowSpecActionCount counts frames (struct ibv_flow_spec_counter_action).
type FlowSpecActionCount struct{ Counters *Counters }

// Type is FlowSpecTypeEth.
func (s FlowSpecEth) Type() FlowSpecType { return inner(FlowSpecTypeEth, s.Inner) }

// Type is FlowSpecTypeIPv4.
func (s FlowSpecIPv4) Type() FlowSpecType { return inner(FlowSpecTypeIPv4, s.Inner) }

// Type is FlowSpecTypeIPv4Ext.
func (s FlowSpecIPv4Ext) Type() FlowSpecType { return inner(FlowSpecTypeIPv4Ext, s.Inner) }

// Type is FlowSpecTypeIPv6.
func (s FlowSpecIPv6) Type() FlowSpecType { return inner(FlowSpecTypeIPv6, s.Inner) }

// Type is FlowSpecTypeESP.
func (s FlowSpecESP) Type() FlowSpecType { return inner(FlowSpecTypeESP, s.Inner) }

// Type is FlowSpecTypeTCP.
func (s FlowSpecTCP) Type() FlowSpecType { return inner(FlowSpecTypeTCP, s.Inner) }

// Type is FlowSpecTypeUDP.
func (s FlowSpecUDP) Type() FlowSpecType { return inner(FlowSpecTypeUDP, s.Inner) }

// Type is FlowSpecTypeVXLANTunnel.
func (FlowSpecVXLAN) Type() FlowSpecType { return FlowSpecTypeVXLANTunnel }

// Type is FlowSpecTypeGRE.
func (FlowSpecGRE) Type() FlowSpecType { return FlowSpecTypeGRE }

// Type is FlowSpecTypeMPLS.
func (s FlowSpecMPLS) Type() FlowSpecType { return inner(FlowSpecTypeMPLS, s.Inner) }

// Type is FlowSpecTypeActionTag.
func (FlowSpecActionTag) Type() FlowSpecType { return FlowSpecTypeActionTag }

// Type is FlowSpecTypeActionDrop.
func (FlowSpecActionDrop) Type() FlowSpecType { return FlowSpecTypeActionDrop }

// Type is FlowSpecTypeActionHandle.
func (FlowSpecActionHandle) Type() FlowSpecType { return FlowSpecTypeActionHandle }

// Type is FlowSpecTypeActionCount.
func (FlowSpecActionCount) Type() FlowSpecType { return FlowSpecTypeActionCount }

func inner(t FlowSpecType, yes bool) FlowSpecType {
	if yes {
		return t | FlowSpecInner
	}
	return t
}
