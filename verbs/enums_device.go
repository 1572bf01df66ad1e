package verbs

import "fmt"

// NodeType is the kind of a device (enum ibv_node_type).
type NodeType int32

// The node types (IBV_NODE_*).
const (
	NodeUnknown     NodeType = -1
	NodeCA          NodeType = 1
	NodeSwitch      NodeType = 2
	NodeRouter      NodeType = 3
	NodeRNIC        NodeType = 4
	NodeUSNIC       NodeType = 5
	NodeUSNICUDP    NodeType = 6
	NodeUnspecified NodeType = 7
)

var nodeTexts = []string{
	"", "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP",
	"unspecified",
}

// String returns the text of ibv_node_type_str; "unknown" for an unknown value.
func (t NodeType) String() string { return textOf(nodeTexts, int64(t)) }

// TransportType is the transport of a device (enum ibv_transport_type).
type TransportType int32

// The transports (IBV_TRANSPORT_*). RoCE counts as TransportIB.
const (
	TransportUnknown     TransportType = -1
	TransportIB          TransportType = 0
	TransportIWARP       TransportType = 1
	TransportUSNIC       TransportType = 2
	TransportUSNICUDP    TransportType = 3
	TransportUnspecified TransportType = 4
)

var transportTexts = []string{"InfiniBand", "iWARP", "usNIC", "usNIC UDP", "unspecified"}

// String returns the text that ibv_devinfo prints; "unknown" for an unknown value.
func (t TransportType) String() string { return textOf(transportTexts, int64(t)) }

// AtomicCap is the scope of the atomicity of atomics (enum ibv_atomic_cap).
type AtomicCap uint32

// The atomic capabilities (IBV_ATOMIC_*).
const (
	AtomicNone AtomicCap = 0 // no atomics
	AtomicHCA  AtomicCap = 1 // among the QPs of the device
	AtomicGlob AtomicCap = 2 // between QPs and the CPU too
)

var atomicCapNames = []string{"ATOMIC_NONE", "ATOMIC_HCA", "ATOMIC_GLOB"}

// String returns the name without IBV_.
func (c AtomicCap) String() string { return nameOf("AtomicCap", atomicCapNames, int64(c)) }

// DeviceCapFlags are features of a device (enum ibv_device_cap_flags). Bits above 31 are those of
// device_cap_flags_ex.
type DeviceCapFlags uint64

// The device capabilities (IBV_DEVICE_*).
const (
	DeviceResizeMaxWR         DeviceCapFlags = 1 << 0
	DeviceBadPKeyCntr         DeviceCapFlags = 1 << 1
	DeviceBadQKeyCntr         DeviceCapFlags = 1 << 2
	DeviceRawMulti            DeviceCapFlags = 1 << 3
	DeviceAutoPathMig         DeviceCapFlags = 1 << 4
	DeviceChangePhyPort       DeviceCapFlags = 1 << 5
	DeviceUDAVPortEnforce     DeviceCapFlags = 1 << 6
	DeviceCurrQPStateMod      DeviceCapFlags = 1 << 7
	DeviceShutdownPort        DeviceCapFlags = 1 << 8
	DeviceInitType            DeviceCapFlags = 1 << 9
	DevicePortActiveEvent     DeviceCapFlags = 1 << 10
	DeviceSysImageGUID        DeviceCapFlags = 1 << 11
	DeviceRCRNRNAKGen         DeviceCapFlags = 1 << 12
	DeviceSRQResize           DeviceCapFlags = 1 << 13
	DeviceNNotifyCQ           DeviceCapFlags = 1 << 14
	DeviceMemWindow           DeviceCapFlags = 1 << 17
	DeviceUDIPCsum            DeviceCapFlags = 1 << 18
	DeviceXRC                 DeviceCapFlags = 1 << 20
	DeviceMemMgtExtensions    DeviceCapFlags = 1 << 21
	DeviceMemWindowType2A     DeviceCapFlags = 1 << 23
	DeviceMemWindowType2B     DeviceCapFlags = 1 << 24
	DeviceRCIPCsum            DeviceCapFlags = 1 << 25
	DeviceRawIPCsum           DeviceCapFlags = 1 << 26
	DeviceManagedFlowSteering DeviceCapFlags = 1 << 29
	DeviceRawScatterFCS       DeviceCapFlags = 1 << 34
	DevicePCIWriteEndPadding  DeviceCapFlags = 1 << 36
	DeviceFlushGlobal         DeviceCapFlags = 1 << 38
	DeviceFlushPersistent     DeviceCapFlags = 1 << 39
	DeviceAtomicWrite         DeviceCapFlags = 1 << 40
)

var deviceCapNames = []string{
	"RESIZE_MAX_WR", "BAD_PKEY_CNTR", "BAD_QKEY_CNTR", "RAW_MULTI", "AUTO_PATH_MIG", "CHANGE_PHY_PORT",
	"UD_AV_PORT_ENFORCE",
	"CURR_QP_STATE_MOD", "SHUTDOWN_PORT", "INIT_TYPE", "PORT_ACTIVE_EVENT", "SYS_IMAGE_GUID", "RC_RNR_NAK_GEN",
	"SRQ_RESIZE",
	"N_NOTIFY_CQ", 17: "MEM_WINDOW", 18: "UD_IP_CSUM", 20: "XRC", 21: "MEM_MGT_EXTENSIONS", 23: "MEM_WINDOW_TYPE_2A",
	24: "MEM_WINDOW_TYPE_2B", 25: "RC_IP_CSUM", 26: "RAW_IP_CSUM", 29: "MANAGED_FLOW_STEERING", 34: "RAW_SCATTER_FCS",
	36: "PCI_WRITE_END_PADDING", 38: "FLUSH_GLOBAL", 39: "FLUSH_PERSISTENT", 40: "ATOMIC_WRITE",
}

// String joins the names of the flags without IBV_DEVICE_.
func (f DeviceCapFlags) String() string { return flagsOf(deviceCapNames, uint64(f), "|") }

// PortState is the logical state of a port (enum ibv_port_state).
type PortState uint32

// The port states (IBV_PORT_*).
const (
	PortNOP         PortState = 0
	PortDown        PortState = 1
	PortInit        PortState = 2
	PortArmed       PortState = 3
	PortActive      PortState = 4
	PortActiveDefer PortState = 5
)

var portStateTexts = []string{"no state change (NOP)", "down", "init", "armed", "active", "active defer"}

// String returns the text of ibv_port_state_str; "unknown" for an unknown value.
func (s PortState) String() string { return textOf(portStateTexts, int64(s)) }

// PhysState is the physical state of a port (phys_state of struct ibv_port_attr).
type PhysState uint8

// The physical states.
const (
	PhysSleep                     PhysState = 1
	PhysPolling                   PhysState = 2
	PhysDisabled                  PhysState = 3
	PhysPortConfigurationTraining PhysState = 4
	PhysLinkUp                    PhysState = 5
	PhysLinkErrorRecovery         PhysState = 6
	PhysPhyTest                   PhysState = 7
)

var physStateTexts = []string{
	"", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION TRAINNING", "LINK_UP", "LINK_ERROR_RECOVERY", "PHY TEST",
}

// String returns the text that ibv_devinfo prints, its spelling included.
func (s PhysState) String() string { return nameOf("PhysState", physStateTexts, int64(s)) }

// LinkLayer is the link layer of a port (link_layer of struct ibv_port_attr).
type LinkLayer uint8

// The link layers (IBV_LINK_LAYER_*). RoCE is LinkLayerEthernet; LinkLayerUnspecified means InfiniBand.
const (
	LinkLayerUnspecified LinkLayer = 0
	LinkLayerInfiniBand  LinkLayer = 1
	LinkLayerEthernet    LinkLayer = 2
)

var linkLayerTexts = []string{"Unspecified", "InfiniBand", "Ethernet"}

// String returns the text that ibv_devinfo prints.
func (l LinkLayer) String() string { return nameOf("LinkLayer", linkLayerTexts, int64(l)) }

// PortCapFlags are features of a port (enum ibv_port_cap_flags).
type PortCapFlags uint32

// The port capabilities (IBV_PORT_*).
const (
	PortSM                PortCapFlags = 1 << 1
	PortNoticeSup         PortCapFlags = 1 << 2
	PortTrapSup           PortCapFlags = 1 << 3
	PortOptIPDSup         PortCapFlags = 1 << 4
	PortAutoMigrSup       PortCapFlags = 1 << 5
	PortSLMapSup          PortCapFlags = 1 << 6
	PortMKeyNVRAM         PortCapFlags = 1 << 7
	PortPKeyNVRAM         PortCapFlags = 1 << 8
	PortLEDInfoSup        PortCapFlags = 1 << 9
	PortSysImageGUIDSup   PortCapFlags = 1 << 11
	PortPKeySWExtPortTrap PortCapFlags = 1 << 12
	PortExtendedSpeedsSup PortCapFlags = 1 << 14
	PortCapMask2Sup       PortCapFlags = 1 << 15
	PortCMSup             PortCapFlags = 1 << 16
	PortSNMPTunnelSup     PortCapFlags = 1 << 17
	PortReinitSup         PortCapFlags = 1 << 18
	PortDeviceMgmtSup     PortCapFlags = 1 << 19
	PortVendorClassSup    PortCapFlags = 1 << 20
	PortDRNoticeSup       PortCapFlags = 1 << 21
	PortCapMaskNoticeSup  PortCapFlags = 1 << 22
	PortBootMgmtSup       PortCapFlags = 1 << 23
	PortLinkLatencySup    PortCapFlags = 1 << 24
	PortClientRegSup      PortCapFlags = 1 << 25
	PortIPBasedGIDs       PortCapFlags = 1 << 26
)

var portCapNames = []string{
	"", "SM", "NOTICE_SUP", "TRAP_SUP", "OPT_IPD_SUP", "AUTO_MIGR_SUP", "SL_MAP_SUP", "MKEY_NVRAM", "PKEY_NVRAM",
	"LED_INFO_SUP", "", "SYS_IMAGE_GUID_SUP", "PKEY_SW_EXT_PORT_TRAP_SUP", "", "EXTENDED_SPEEDS_SUP", "CAP_MASK2_SUP",
	"CM_SUP", "SNMP_TUNNEL_SUP", "REINIT_SUP", "DEVICE_MGMT_SUP", "VENDOR_CLASS_SUP", "DR_NOTICE_SUP",
	"CAP_MASK_NOTICE_SUP",
	"BOOT_MGMT_SUP", "LINK_LATENCY_SUP", "CLIENT_REG_SUP", "IP_BASED_GIDS",
}

// String joins the names of the flags without IBV_PORT_.
func (f PortCapFlags) String() string { return flagsOf(portCapNames, uint64(f), "|") }

// PortCapFlags2 are further features of a port (enum ibv_port_cap_flags2).
type PortCapFlags2 uint16

// The further port capabilities (IBV_PORT_*).
const (
	PortSetNodeDescSup          PortCapFlags2 = 1 << 0
	PortInfoExtSup              PortCapFlags2 = 1 << 1
	PortVirtSup                 PortCapFlags2 = 1 << 2
	PortSwitchPortStateTableSup PortCapFlags2 = 1 << 3
	PortLinkWidth2XSup          PortCapFlags2 = 1 << 4
	PortLinkSpeedHDRSup         PortCapFlags2 = 1 << 5
	PortLinkSpeedNDRSup         PortCapFlags2 = 1 << 10
	PortLinkSpeedXDRSup         PortCapFlags2 = 1 << 12
)

var portCap2Names = []string{
	"SET_NODE_DESC_SUP", "INFO_EXT_SUP", "VIRT_SUP", "SWITCH_PORT_STATE_TABLE_SUP", "LINK_WIDTH_2X_SUP",
	"LINK_SPEED_HDR_SUP",
	10: "LINK_SPEED_NDR_SUP", 12: "LINK_SPEED_XDR_SUP",
}

// String joins the names of the flags without IBV_PORT_.
func (f PortCapFlags2) String() string { return flagsOf(portCap2Names, uint64(f), "|") }

// PortFlags are the flags of a port (flags of struct ibv_port_attr).
type PortFlags uint8

// QPFGRHRequired: every address of the port must have a GRH (IBV_QPF_GRH_REQUIRED).
const QPFGRHRequired PortFlags = 1 << 0

// String joins the names of the flags without IBV_QPF_.
func (f PortFlags) String() string { return flagsOf([]string{"GRH_REQUIRED"}, uint64(f), "|") }

// LinkWidth is the width of a link (active_width of struct ibv_port_attr).
type LinkWidth uint8

// The link widths.
const (
	LinkWidth1X  LinkWidth = 1
	LinkWidth4X  LinkWidth = 2
	LinkWidth8X  LinkWidth = 4
	LinkWidth12X LinkWidth = 8
	LinkWidth2X  LinkWidth = 16
)

// Lanes returns the number of lanes of the link; 0 for an invalid value.
func (w LinkWidth) Lanes() int {
	switch w {
	case LinkWidth1X:
		return 1
	case LinkWidth2X:
		return 2
	case LinkWidth4X:
		return 4
	case LinkWidth8X:
		return 8
	case LinkWidth12X:
		return 12
	}
	return 0
}

// String returns the width as ibv_devinfo prints it: the lanes.
func (w LinkWidth) String() string {
	if n := w.Lanes(); n != 0 {
		return fmt.Sprint(n)
	}
	return "invalid width"
}

// LinkSpeed is the speed of a lane (active_speed of struct ibv_port_attr).
type LinkSpeed uint16

// The lane speeds.
const (
	LinkSpeedSDR   LinkSpeed = 1   // 2.5 Gb/s
	LinkSpeedDDR   LinkSpeed = 2   // 5 Gb/s
	LinkSpeedQDR   LinkSpeed = 4   // 10 Gb/s
	LinkSpeedFDR10 LinkSpeed = 8   // 10 Gb/s
	LinkSpeedFDR   LinkSpeed = 16  // 14 Gb/s
	LinkSpeedEDR   LinkSpeed = 32  // 25 Gb/s
	LinkSpeedHDR   LinkSpeed = 64  // 50 Gb/s
	LinkSpeedNDR   LinkSpeed = 128 // 100 Gb/s
	LinkSpeedXDR   LinkSpeed = 256 // 200 Gb/s
)

// String returns the speed of a lane as ibv_devinfo prints it.
func (s LinkSpeed) String() string {
	switch s {
	case LinkSpeedSDR:
		return "2.5 Gbps"
	case LinkSpeedDDR:
		return "5.0 Gbps"
	case LinkSpeedQDR, LinkSpeedFDR10:
		return "10.0 Gbps"
	case LinkSpeedFDR:
		return "14.0 Gbps"
	case LinkSpeedEDR:
		return "25.0 Gbps"
	case LinkSpeedHDR:
		return "50.0 Gbps"
	case LinkSpeedNDR:
		return "100.0 Gbps"
	case LinkSpeedXDR:
		return "200.0 Gbps"
	}
	return "invalid speed"
}

// GIDType is the type of a GID table entry (enum ibv_gid_type).
type GIDType uint32

// The GID types (IBV_GID_TYPE_*).
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

var gidTypeNames = []string{"IB", "RoCE v1", "RoCE v2"}

// String returns the text that ibv_devinfo prints.
func (t GIDType) String() string { return nameOf("GIDType", gidTypeNames, int64(t)) }
