package verbs

// DeviceAttr describes a device (struct ibv_device_attr). The values never change. Maxima
// are upper bounds: memory, or other users of the device, may allow less. 0 means that the device has none of it.
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
	MaxQPRdAtom           int // READs and atomics that a QP serves at once
	MaxEERdAtom           int
	MaxResRdAtom          int // READs and atomics that the device serves at once
	MaxQPInitRdAtom       int // READs and atomics that a QP has outstanding
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
	LocalCAAckDelay       uint8 // 4.096 us x 2^n from a message to its acknowledgement at most
	PhysPortCnt           uint8 // ports are numbered from 1
}

// PortAttr describes a port (struct ibv_port_attr). State, MTU and counters change.
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

// GlobalRoute is what a GRH is made of (struct ibv_global_route).
type GlobalRoute struct {
	DGID         GID
	FlowLabel    uint32 // 20 bits
	SGIDIndex    int    // in the port's GID table; Context.SelectGID finds it
	HopLimit     uint8  // of packets; 0 is sent as 64
	TrafficClass uint8
}

// AHAttr is the way to a destination (struct ibv_ah_attr).
type AHAttr struct {
	GRH         GlobalRoute // if IsGlobal
	DLID        uint16
	SL          uint8 // 0..15
	SrcPathBits uint8 // 0..127
	StaticRate  StaticRate
	IsGlobal    bool // always on RoCE
	PortNum     uint8
}

// QPCap holds the sizes of a QP (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR     uint32 // outstanding requests on the send queue
	MaxRecvWR     uint32 // outstanding requests on the receive queue; ignored with an SRQ
	MaxSendSGE    uint32 // SGEs of a send request
	MaxRecvSGE    uint32 // SGEs of a receive request; ignored with an SRQ
	MaxInlineData uint32 // bytes
}

// QPInitAttr says what QP to make (struct ibv_qp_init_attr).
type QPInitAttr struct {
	Context any // anything; QP.QPContext returns it
	SendCQ  *CQ
	RecvCQ  *CQ
	SRQ     *SRQ // takes the receives instead of a queue of the QP's own; RC, UD and XRC
	Cap     QPCap
	Type    QPType
	SigAll  bool // every send request makes a completion, not only those with SendSignaled
}

// QPAttr holds the attributes of a QP (struct ibv_qp_attr). QPAttrMask says which of them a call is about.
type QPAttr struct {
	QPState          QPState
	CurQPState       QPState
	PathMTU          MTU      // at most the port's active MTU
	PathMigState     MigState // MigRearm arms the QP, MigMigrated takes the alternate path of one in MigArmed
	QKey             uint32
	RQPSN            uint32 // 24 bits
	SQPSN            uint32 // 24 bits
	DestQPNum        uint32 // 24 bits
	QPAccessFlags    AccessFlags
	Cap              QPCap
	AHAttr           AHAttr
	AltAHAttr        AHAttr // the alternate path; when the QP migrates the two change places
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	EnSQDAsyncNotify bool
	SQDraining       bool // query only
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8 // code, 0..31; see RNRDelay
	PortNum          uint8
	Timeout          uint8 // code, 0..31: 4.096 us x 2^n; 0 waits for ever
	RetryCnt         uint8 // 0..7
	RNRRetry         uint8 // 0..7; 7 tries for ever
	AltPortNum       uint8
	AltTimeout       uint8  // as Timeout
	RateLimit        uint32 // kb/s
}

// SRQAttr holds the attributes of an SRQ (struct ibv_srq_attr).
type SRQAttr struct {
	MaxWR    uint32 // outstanding requests
	MaxSGE   uint32 // SGEs of a request
	SRQLimit uint32 // fewer receives left than this raise EventSRQLimitReached once; 0 = not armed
}

// SRQInitAttr says what SRQ to make (struct ibv_srq_init_attr).
type SRQInitAttr struct {
	Context any     // anything; SRQ.SRQContext returns it
	Attr    SRQAttr // SRQLimit is ignored
}
