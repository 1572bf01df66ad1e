package verbs

import "net/netip"

// A Provider makes devices. It registers itself with Register, as database/sql drivers
// do. This seam is for those who write providers (provider/soft, later iwarp and hw);
// programs never see it.
//
// The verbs layer holds the rules of the specification: it has checked arguments, ranges, attribute masks, state
// transitions and lifetimes before it calls a driver, so that each rule exists once. Except where a method says so, a
// driver never sees a use after Close. Calls of one object may come from any goroutines at once. Errors carry an
// errno (see Errno). A driver that lacks a feature embeds the Unsupported type of the interface, whose methods answer
// EOPNOTSUPP.
type Provider interface {
	// Name is the provider's own, for messages: "soft".
	Name() string
	// Devices lists what exists now. It is called for each Devices of a program.
	Devices() ([]DeviceDriver, error)
}

// DeviceDriver is one device of a provider.
type DeviceDriver interface {
	Info() DeviceInfo
	// Open makes a context. up stays valid until the context's Close has returned.
	Open(up ContextUpcalls) (ContextDriver, error)
}

// DeviceInfo is what is known of a device without opening it.
type DeviceInfo struct {
	Name      string // vrb_eth0
	GUID      GUID
	NodeType  NodeType
	Transport TransportType
	Interface string // of the network; empty if there is none
}

// ContextUpcalls is how a driver reports unaffiliated events. None of the upcalls of this file blocks or
// calls back into the driver; they may come from any goroutine.
type ContextUpcalls interface {
	PortEvent(t EventType, port uint8)
	DeviceEvent(t EventType)
}

// CQUpcalls is how a driver reports what happens to a CQ.
type CQUpcalls interface {
	// Completion says that the event which ReqNotify asked for has come; once for each ReqNotify at most.
	Completion()
	// Error says that the CQ is in error (EventCQErr).
	Error()
}

// QPUpcalls is how a driver reports what happens to a QP.
type QPUpcalls interface {
	Event(t EventType)
	// StateChanged says that the QP moved by itself, to SQE or ERR. It comes after the move and before any later
	// Modify of the QP is answered.
	StateChanged(s QPState)
}

// SRQUpcalls is how a driver reports what happens to an SRQ.
type SRQUpcalls interface {
	Event(t EventType)
}

// ContextDriver is an open device.
type ContextDriver interface {
	Close() error
	NumCompVectors() int
	QueryDevice() (DeviceAttr, error)
	QueryPort(port uint8) (PortAttr, error)
	// GIDTable is the port's table; entry i has index i. Empty entries are zero.
	GIDTable(port uint8) ([]GIDEntry, error)
	PKeyTable(port uint8) ([]uint16, error)
	// SelectGID chooses the entry for traffic to a peer and says why.
	SelectGID(port uint8, peer netip.Addr) (GIDChoice, error)
	AllocPD() (PDDriver, error)
	CreateCQ(cqe, compVector int, up CQUpcalls) (CQDriver, error)
}

// PDDriver is a protection domain.
type PDDriver interface {
	Dealloc() error
	RegMR(buf []byte, iova uint64, access AccessFlags) (MRDriver, error)
	CreateAH(attr AHAttr) (AHDriver, error)
	// CreateSRQ and CreateQP put the actual sizes, which are not below those asked for, in init.
	CreateSRQ(init *SRQAttr, up SRQUpcalls) (SRQDriver, error)
	CreateQP(init *QPDriverInit, up QPUpcalls) (QPDriver, error)
}

// QPDriverInit is QPInitAttr in the driver's terms.
type QPDriverInit struct {
	Type           QPType
	SendCQ, RecvCQ CQDriver
	SRQ            SRQDriver // nil without one
	Cap            QPCap
	SigAll         bool

	// Of QPInitAttrEx. A driver answers EOPNOTSUPP for what it lacks. SendOps has operations that the type has;
	// without PostSendAll the verbs layer refuses it. QPExWithAtomicWrite needs room for 8 bytes of inline data,
	// which Cap then says.
	SendOps      SendOpsFlags
	CreateFlags  QPCreateFlags
	MaxTSOHeader uint16
	SourceQPN    uint32
	RWQIndTbl    RWQIndTableDriver // nil without one; RecvCQ is then nil, and SendCQ may be
	RxHash       *RxHashConf       // for RWQIndTbl; it is the program's
}

// MRDriver is a memory region.
type MRDriver interface {
	LKey() uint32
	RKey() uint32
	// Rereg changes what is not nil; pd is the new domain. On failure the region is as it was.
	Rereg(pd PDDriver, buf []byte, iova uint64, access *AccessFlags) error
	Dereg() error
}

// AHDriver is an address handle.
type AHDriver interface {
	Destroy() error
}

// CQDriver is a completion queue.
type CQDriver interface {
	Cap() int
	// Poll must not retain wcs, nor let it out of the calling goroutine: wcs may lie on its stack, unknown to the
	// compiler. Poll and ReqNotify may come after Destroy, from a goroutine that began before it.
	Poll(wcs []WC) (int, error)
	ReqNotify(solicitedOnly bool) error
	Resize(cqe int) error
	Destroy() error
}

// CQModerator is a CQDriver that has ibv_modify_cq.
type CQModerator interface {
	// Moderate puts m, which is within DeviceAttrEx.CQModCaps, in force. 0 for both is no moderation.
	Moderate(m ModerateCQ) error
}

// SRQDriver is a shared receive queue.
type SRQDriver interface {
	// PostRecv is as that of QPDriver.
	PostRecv(wrs []RecvWR) (int, error)
	// On success attr holds actual values.
	Modify(attr *SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	Destroy() error
}

// QPDriver is a queue pair.
type QPDriver interface {
	QPN() uint32
	// Modify gets a transition that the tables allow from the state that StateChanged told last. If the QP has moved
	// by itself since, so that they no longer do, it answers EINVAL. A failure changes nothing. On success attr holds
	// actual values.
	Modify(attr *QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// PostSend and PostRecv return how many of wrs they posted; if err is not nil the next one is the bad one. They
	// copy what they need: neither wrs nor the SGList, Inline or BindInfo of an element may be retained, put into the
	// heap even for the time of the call, or handed to another goroutine, because they may lie on the caller's stack,
	// unknown to the compiler. An AH or MW may be kept. Both may come after Destroy, from a goroutine that began before it, and
	// then answer an error.
	PostSend(wrs []SendWR) (int, error)
	PostRecv(wrs []RecvWR) (int, error)
	AttachMcast(gid GID) error
	DetachMcast(gid GID) error
	Destroy() error
}
