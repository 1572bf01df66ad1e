package verbs

// ODPCaps describes the support of on-demand paging (struct ibv_odp_caps). RC, UC and UD name the operations of these
// transports that work on regions with AccessOnDemand.
type ODPCaps struct {
	General ODPGeneralCaps
	RC      ODPTransportCaps
	UC      ODPTransportCaps
	UD      ODPTransportCaps
}

// ODPGeneralCaps holds the general capabilities of on-demand paging (enum ibv_odp_general_caps).
type ODPGeneralCaps uint64

// The general capabilities of on-demand paging (IBV_ODP_*).
const (
	ODPSupport         ODPGeneralCaps = 1 << 0 // AccessOnDemand
	ODPSupportImplicit ODPGeneralCaps = 1 << 1 // a region of the whole address space
)

var odpGeneralNames = []string{"SUPPORT", "SUPPORT_IMPLICIT"}

// String joins the names of the flags without IBV_ODP_.
func (c ODPGeneralCaps) String() string { return flagsOf(odpGeneralNames, uint64(c), "|") }

// ODPTransportCaps is the set of operations of a transport that work on regions with on-demand paging (enum
// ibv_odp_transport_cap_bits).
type ODPTransportCaps uint32

// The operations (IBV_ODP_SUPPORT_*).
const (
	ODPSend        ODPTransportCaps = 1 << 0
	ODPRecv        ODPTransportCaps = 1 << 1
	ODPWrite       ODPTransportCaps = 1 << 2
	ODPRead        ODPTransportCaps = 1 << 3
	ODPAtomic      ODPTransportCaps = 1 << 4
	ODPSRQRecv     ODPTransportCaps = 1 << 5
	ODPFlush       ODPTransportCaps = 1 << 6
	ODPAtomicWrite ODPTransportCaps = 1 << 7
)

var odpTransportNames = []string{"SEND", "RECV", "WRITE", "READ", "ATOMIC", "SRQ_RECV", "FLUSH", "ATOMIC_WRITE"}

// String joins the names of the flags without IBV_ODP_SUPPORT_.
func (c ODPTransportCaps) String() string { return flagsOf(odpTransportNames, uint64(c), "|") }

// IsQPTSupported reports whether a set of QP types, such as TSOCaps.SupportedQPTs, contains t: bit n stands for QP
// type n (ibv_is_qpt_supported).
func IsQPTSupported(caps uint32, t QPType) bool { return t < 32 && caps>>t&1 != 0 }

// TSOCaps describes segmentation offload (struct ibv_tso_caps). Bit n of SupportedQPTs stands for QP type n.
type TSOCaps struct {
	MaxTSO        uint32 // bytes of payload
	SupportedQPTs uint32
}

// RSSCaps describes receive side scaling (struct ibv_rss_caps). Bit n of SupportedQPTs stands for QP type n.
type RSSCaps struct {
	SupportedQPTs              uint32
	MaxRWQIndirectionTables    uint32
	MaxRWQIndirectionTableSize uint32
	RxHashFieldsMask           uint64
	RxHashFunction             uint8
}

// PacketPacingCaps describes rate limits (struct ibv_packet_pacing_caps). Bit n of SupportedQPTs stands for QP type
// n.
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // kb/s
	QPRateLimitMax uint32 // kb/s
	SupportedQPTs  uint32
}

// RawPacketCaps is the set of offloads of raw packet QPs (enum ibv_raw_packet_caps).
type RawPacketCaps uint32

// The raw packet capabilities (IBV_RAW_PACKET_CAP_*).
const (
	RawPacketCVLANStripping RawPacketCaps = 1 << 0
	RawPacketScatterFCS     RawPacketCaps = 1 << 1
	RawPacketIPCsum         RawPacketCaps = 1 << 2
	RawPacketDelayDrop      RawPacketCaps = 1 << 3
)

var rawPacketNames = []string{"CVLAN_STRIPPING", "SCATTER_FCS", "IP_CSUM", "DELAY_DROP"}

// String joins the names of the flags without IBV_RAW_PACKET_CAP_.
func (c RawPacketCaps) String() string { return flagsOf(rawPacketNames, uint64(c), "|") }

// TMCaps describes tag matching (struct ibv_tm_caps).
type TMCaps struct {
	MaxRndvHdrSize uint32 // bytes
	MaxNumTags     uint32
	Flags          TMCapFlags
	MaxOps         uint32
	MaxSGE         uint32
}

// TMCapFlags is the set of transports that match tags (enum ibv_tm_cap_flags).
type TMCapFlags uint32

// TMCapRC: RC QPs match tags (IBV_TM_CAP_RC).
const TMCapRC TMCapFlags = 1 << 0

// String joins the names of the flags without IBV_TM_CAP_.
func (c TMCapFlags) String() string { return flagsOf([]string{"RC"}, uint64(c), "|") }

// CQModerationCaps holds the maxima of ModerateCQ (struct ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16
	MaxCQPeriod uint16 // microseconds
}

// PCIAtomicCaps holds the sizes of the atomics that the device performs on memory behind PCI (struct
// ibv_pci_atomic_caps).
type PCIAtomicCaps struct {
	FetchAdd    PCIAtomicSizes
	Swap        PCIAtomicSizes
	CompareSwap PCIAtomicSizes
}

// PCIAtomicSizes is a set of operand sizes of an atomic (enum ibv_pci_atomic_op_size).
type PCIAtomicSizes uint16

// The sizes (IBV_PCI_ATOMIC_OPERATION_*_BYTE_SIZE_SUP).
const (
	PCIAtomic4Byte  PCIAtomicSizes = 1 << 0
	PCIAtomic8Byte  PCIAtomicSizes = 1 << 1
	PCIAtomic16Byte PCIAtomicSizes = 1 << 2
)

var pciAtomicNames = []string{"4_BYTE", "8_BYTE", "16_BYTE"}

// String joins the names of the sizes.
func (s PCIAtomicSizes) String() string { return flagsOf(pciAtomicNames, uint64(s), "|") }
