package verbs

// DeviceAttr describes a device (struct ibv_device_attr, struct ibv_device_attr_ex). The values never change. Maxima
// are upper bounds: available memory, or other users of the device, may allow less. A maximum of 0 means that the
// device lacks the feature.
type DeviceAttr struct {
	FWVer        string
	NodeGUID     GUID
	SysImageGUID GUID
	MaxMRSize    uint64 // bytes
	PageSizeCap  uint64 // bit n: pages of 2^n bytes
	VendorID     uint32
	VendorPartID uint32
	HWVer        uint32

	MaxQP                 int
	MaxQPWR               int // requests on a send or receive queue
	DeviceCapFlags        DeviceCapFlags
	MaxSGE                int // per request
	MaxSGERd              int // per RDMA READ
	MaxCQ                 int
	MaxCQE                int // per CQ
	MaxMR                 int
	MaxPD                 int
	MaxQPRdAtom           int // incoming READs and atomics of a QP at once
	MaxEERdAtom           int
	MaxResRdAtom          int // incoming READs and atomics of the device at once
	MaxQPInitRdAtom       int // outgoing READs and atomics of a QP at once
	MaxEEInitRdAtom       int
	AtomicCap             AtomicCap
	MaxEE                 int
	MaxRDD                int
	MaxMW                 int
	MaxRawIPv6QP          int
	MaxRawEthyQP          int
	MaxMcastGrp           int
	MaxMcastQPAttach      int // QPs per group
	MaxTotalMcastQPAttach int
	MaxAH                 int
	MaxFMR                int
	MaxMapPerFMR          int
	MaxSRQ                int
	MaxSRQWR              int
	MaxSRQSGE             int
	MaxPKeys              uint16
	LocalCAAckDelay       uint8 // the longest time from a message to its acknowledgement: 4.096 us x 2^n
	PhysPortCnt           uint8 // ports are numbered from 1

	ODPCaps                 ODPCaps
	XRCODPCaps              ODPTransportCaps
	CompletionTimestampMask uint64 // valid bits of WC.Timestamp
	HCACoreClock            uint64 // kHz; the clock of WC.Timestamp
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

// PortAttr describes a port (struct ibv_port_attr). State, ActiveMTU and the counters change over time.
type PortAttr struct {
	State         PortState
	MaxMTU        MTU
	ActiveMTU     MTU
	GIDTblLen     int
	PortCapFlags  PortCapFlags
	MaxMsgSz      uint32 // bytes
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	PKeyTblLen    uint16
	LID           uint16
	SMLID         uint16
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   LinkWidth
	ActiveSpeed   LinkSpeed
	PhysState     PhysState
	LinkLayer     LinkLayer
	Flags         PortFlags
	PortCapFlags2 PortCapFlags2
}

// GlobalRoute holds the fields of a GRH (struct ibv_global_route).
type GlobalRoute struct {
	DGID         GID
	FlowLabel    uint32 // 20 bits
	SGIDIndex    int    // in the port's GID table; Context.SelectGID finds it
	HopLimit     uint8  // hops that a packet may take, the TTL over IPv4; 0 stands for 64
	TrafficClass uint8
}

// AHAttr is the address of a destination (struct ibv_ah_attr).
type AHAttr struct {
	GRH         GlobalRoute // valid if IsGlobal
	DLID        uint16
	SL          uint8 // 0 to 15
	SrcPathBits uint8 // 0 to 127
	StaticRate  StaticRate
	IsGlobal    bool  // must be set on RoCE
	PortNum     uint8 // from 1
}

// QPCap holds the sizes of a QP (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR     uint32 // outstanding requests on the send queue
	MaxRecvWR     uint32 // outstanding requests on the receive queue; ignored with an SRQ
	MaxSendSGE    uint32 // SGEs of a send request
	MaxRecvSGE    uint32 // SGEs of a receive request; ignored with an SRQ
	MaxInlineData uint32 // bytes
}

// QPInitAttr holds the attributes of a new QP (struct ibv_qp_init_attr, struct ibv_qp_init_attr_ex, enum
// ibv_qp_init_attr_mask). The receiver of the call gives the domain: the PD of PD.CreateQP, the XRC domain of
// XRCD.CreateQP.
type QPInitAttr struct {
	Context any // returned by QP.QPContext
	SendCQ  *CQ
	RecvCQ  *CQ
	SRQ     *SRQ // takes the receives instead of a receive queue; RC and UD
	Cap     QPCap
	Type    QPType
	SigAll  bool // each successful send request completes, as if it had SendSignaled

	SendOpsFlags SendOpsFlags // operations of the QPEx; 0: the QP has no QPEx
	CreateFlags  QPCreateFlags
	MaxTSOHeader uint16       // bytes; for WRTSO
	SourceQPN    uint32       // 24 bits; UD; needs QPCreateSourceQPN
	RWQIndTbl    *RWQIndTable // spreads receives over WQs; the QP then has no receive queue
	RxHashConf   *RxHashConf  // selects the WQ of a frame; needs RWQIndTbl
}

// QPAttr holds the attributes of a QP (struct ibv_qp_attr). A QPAttrMask names the fields that a call uses.
type QPAttr struct {
	QPState          QPState
	CurQPState       QPState
	PathMTU          MTU      // at most the port's active MTU
	PathMigState     MigState // MigRearm arms the QP; MigMigrated moves a QP in MigArmed to the alternate path
	QKey             uint32
	RQPSN            uint32 // 24 bits
	SQPSN            uint32 // 24 bits
	DestQPNum        uint32 // 24 bits
	QPAccessFlags    AccessFlags
	Cap              QPCap
	AHAttr           AHAttr
	AltAHAttr        AHAttr // the alternate path; migration exchanges it with AHAttr
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool // query only
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8 // code, 0 to 31; see RNRDelay
	PortNum          uint8
	Timeout          uint8 // code, 0 to 31: 4.096 us x 2^n; 0 disables the time-out
	RetryCnt         uint8 // 0 to 7
	RNRRetry         uint8 // 0 to 7; 7: no limit
	AltPortNum       uint8
	AltTimeout       uint8  // code, 0 to 31, as Timeout
	RateLimit        uint32 // kb/s
}

// SRQAttr holds the attributes of an SRQ (struct ibv_srq_attr).
type SRQAttr struct {
	MaxWR    uint32 // outstanding requests
	MaxSGE   uint32 // SGEs of a request
	SRQLimit uint32 // EventSRQLimitReached is raised once when fewer receives than this are left; 0: not armed
}

// SRQInitAttr holds the attributes of a new SRQ (struct ibv_srq_init_attr, struct ibv_srq_init_attr_ex, enum
// ibv_srq_init_attr_mask). The receiver of PD.CreateSRQ gives the PD.
type SRQInitAttr struct {
	Context any     // returned by SRQ.SRQContext
	Attr    SRQAttr // SRQLimit is ignored
	Type    SRQType // SRQTypeBasic is the zero value
	XRCD    *XRCD   // type XRC
	CQ      *CQ     // types XRC and TM: the CQ of received messages
	TMCap   TMCap   // type TM
}
