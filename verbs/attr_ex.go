package verbs

// DeviceAttrEx is what Context.QueryDeviceEx tells (struct ibv_device_attr_ex). A field that is zero stands for a
// feature that the device lacks.
type DeviceAttrEx struct {
	Orig                    DeviceAttr
	ODPCaps                 ODPCaps
	XRCODPCaps              ODPTransportCaps
	CompletionTimestampMask uint64         // bits of a raw completion timestamp that count
	HCACoreClock            uint64         // kHz, of the raw completion timestamps
	DeviceCapFlagsEx        DeviceCapFlags // those above 31 too
	TSOCaps                 TSOCaps
	RSSCaps                 RSSCaps
	MaxWQTypeRQ             uint32 // receive work queues
	PacketPacingCaps        PacketPacingCaps
	RawPacketCaps           RawPacketCaps
	TMCaps                  TMCaps
	CQModCaps               CQModerationCaps
	MaxDMSize               uint64 // bytes of device memory
	PCIAtomicCaps           PCIAtomicCaps
}

// ODPCaps tells what works on regions with on-demand paging (struct ibv_odp_caps).
type ODPCaps struct {
	General ODPGeneralCaps
	RC      ODPTransportCaps
	UC      ODPTransportCaps
	UD      ODPTransportCaps
}

// ODPGeneralCaps tells how far on-demand paging goes (enum ibv_odp_general_caps).
type ODPGeneralCaps uint64

// The general capabilities of on-demand paging (IBV_ODP_*).
const (
	ODPSupport         ODPGeneralCaps = 1 << 0 // AccessOnDemand
	ODPSupportImplicit ODPGeneralCaps = 1 << 1 // a region of the whole address space
)

var odpGeneralNames = []string{"SUPPORT", "SUPPORT_IMPLICIT"}

// String joins the names of the flags without IBV_ODP_.
func (c ODPGeneralCaps) String() string { return flagsOf(odpGeneralNames, uint64(c), "|") }

// ODPTransportCaps tells which operations of a transport work on regions with on-demand paging (enum
// ibv_odp_transport_cap_bits).
type ODPTransportCaps uint32

// The operations (IBV_ODP_SUPPORT_*).
const (
	ODPSend    ODPTransportCaps = 1 << 0
	ODPRecv    ODPTransportCaps = 1 << 1
	ODPWrite   ODPTransportCaps = 1 << 2
	ODPRead    ODPTransportCaps = 1 << 3
	ODPAtomic  ODPTransportCaps = 1 << 4
	ODPSRQRecv ODPTransportCaps = 1 << 5
)

var odpTransportNames = []string{"SEND", "RECV", "WRITE", "READ", "ATOMIC", "SRQ_RECV"}

// String joins the names of the flags without IBV_ODP_SUPPORT_.
func (c ODPTransportCaps) String() string { return flagsOf(odpTransportNames, uint64(c), "|") }

// IsQPTSupported tells whether a SupportedQPTs of the structs below has the type: bit n stands for QP type n
// (ibv_is_qpt_supported).
func IsQPTSupported(caps uint32, t QPType) bool { return t < 32 && caps>>t&1 != 0 }

// TSOCaps tells of segmentation by the device (struct ibv_tso_caps). Bit n of SupportedQPTs stands for QP type n.
type TSOCaps struct {
	MaxTSO        uint32 // bytes of payload
	SupportedQPTs uint32
}

// RSSCaps tells of hashing packets to receive queues (struct ibv_rss_caps). Bit n of SupportedQPTs stands for QP type n.
type RSSCaps struct {
	SupportedQPTs              uint32
	MaxRWQIndirectionTables    uint32
	MaxRWQIndirectionTableSize uint32
	RxHashFieldsMask           uint64
	RxHashFunction             uint8
}

// PacketPacingCaps tells of rate limits (struct ibv_packet_pacing_caps). Bit n of SupportedQPTs stands for QP type n.
type PacketPacingCaps struct {
	QPRateLimitMin uint32 // kb/s
	QPRateLimitMax uint32 // kb/s
	SupportedQPTs  uint32
}

// RawPacketCaps tells of offloads of raw packet QPs (enum ibv_raw_packet_caps).
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

// TMCaps tells of tag matching (struct ibv_tm_caps).
type TMCaps struct {
	MaxRndvHdrSize uint32 // bytes
	MaxNumTags     uint32
	Flags          TMCapFlags
	MaxOps         uint32
	MaxSGE         uint32
}

// TMCapFlags tells which transports match tags (enum ibv_tm_cap_flags).
type TMCapFlags uint32

// TMCapRC says that RC QPs match tags (IBV_TM_CAP_RC).
const TMCapRC TMCapFlags = 1 << 0

// String joins the names of the flags without IBV_TM_CAP_.
func (c TMCapFlags) String() string { return flagsOf([]string{"RC"}, uint64(c), "|") }

// CQModerationCaps bounds ModerateCQ (struct ibv_cq_moderation_caps).
type CQModerationCaps struct {
	MaxCQCount  uint16
	MaxCQPeriod uint16 // microseconds
}

// PCIAtomicCaps tells which atomics the device can do on memory behind PCI (struct ibv_pci_atomic_caps): masks of sizes.
type PCIAtomicCaps struct {
	FetchAdd    PCIAtomicSizes
	Swap        PCIAtomicSizes
	CompareSwap PCIAtomicSizes
}

// PCIAtomicSizes are the sizes of an atomic operation (enum ibv_pci_atomic_op_size).
type PCIAtomicSizes uint16

// The sizes (IBV_PCI_ATOMIC_OPERATION_*_BYTE_SIZE_SUP).
const (
	PCIAtomic4Byte  PCIAtomicSizes = 1 << 0
	PCIAtomic8Byte  PCIAtomicSizes = 1 << 1
	PCIAtomic16Byte PCIAtomicSizes = 1 << 2
)

var pciAtomicNames = []string{"4_BYTE", "8_BYTE", "16_BYTE"}

// String joins the sizes.
func (s PCIAtomicSizes) String() string { return flagsOf(pciAtomicNames, uint64(s), "|") }

// QueryDeviceEx describes the device with its further features (ibv_query_device_ex). The values never change. The C
// function's input argument has no effect and is left out.
func (ctx *Context) QueryDeviceEx() (DeviceAttrEx, error) {
	const op = "query_device_ex"
	if err := ctx.enter(op); err != nil {
		return DeviceAttrEx{}, err
	}
	defer ctx.leave()
	attr := DeviceAttrEx{DeviceCapFlagsEx: ctx.attr.DeviceCapFlags}
	if drv, ok := ctx.drv.(DeviceExQuerier); ok {
		if err := drv.QueryDeviceEx(&attr); err != nil {
			return DeviceAttrEx{}, driverError(op, ctx.obj(), err)
		}
	}
	attr.Orig = ctx.attr
	return attr, nil
}
