package verbs

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/verbena-rdma/verbena/internal/seam"
)

// DriverProvider lists the devices of one implementation. It is internal to this module: package internal/driver
// registers providers. Decision 0030 gives the reason.
//
// The verbs layer enforces the rules of the specification: it checks arguments, ranges, attribute masks, state
// transitions and lifetimes before it calls a driver, so that each rule exists once. Except where a method says
// otherwise, a driver is not called after Close. Several goroutines may call one object at once. Errors carry an
// errno (see Errno).
//
// Each object of a driver embeds DriverUnsupported, which implements the optional methods. A driver gets the
// program's own attributes; driver.Of returns the driver's object for an object in them.
type DriverProvider interface {
	// Name returns the provider's name, for messages: "soft".
	Name() string
	// Devices lists the devices that exist now. It is called for each Devices of a program. ENODEV says why there are
	// none.
	Devices() ([]DriverDevice, error)
}

// DriverDevice is one device of a provider.
type DriverDevice interface {
	Info() DriverInfo
	// Open makes a context. up stays valid until the context's Close has returned.
	Open(up DriverContextEvents) (DriverContext, error)
}

// DriverInfo holds the properties of a device that are known before it is opened.
type DriverInfo struct {
	Name      string // "vrb_eth0"
	GUID      GUID
	NodeType  NodeType
	Transport TransportType
	Interface string // network interface; empty if there is none
}

// DriverEvents receives the events of an SRQ or a WQ. The methods of the Events interfaces neither block nor call
// back into the driver; any goroutine may call them.
type DriverEvents interface {
	Event(t EventType)
}

// DriverContextEvents receives unaffiliated events.
type DriverContextEvents interface {
	PortEvent(t EventType, port uint8)
	DeviceEvent(t EventType)
}

// DriverCQEvents receives the events of a CQ.
type DriverCQEvents interface {
	// Completion reports the event that ReqNotify requested, at most once for each ReqNotify.
	Completion()
	// Error reports that the CQ is in error (EventCQErr). Poll fails from before this call on, once the CQ is empty.
	Error()
}

// DriverQPEvents receives the events of a QP.
type DriverQPEvents interface {
	DriverEvents
	// StateChanged reports that the QP moved by itself, to SQE or ERR. It comes after the move and before any later
	// Modify of the QP is answered. On software devices the completion of what has failed comes after it.
	StateChanged(s QPState)
}

// DriverContext is an open device.
type DriverContext interface {
	Close() error
	NumCompVectors() int // at least 1
	QueryDevice() (DeviceAttr, error)
	QueryPort(port uint8) (PortAttr, error)
	// GIDTable returns the port's table, which the caller must not change; entry i has index i, whatever its Index and
	// Port are. Empty entries are zero.
	GIDTable(port uint8) ([]GIDEntry, error)
	// PKeyTable returns the port's table, which the caller must not change.
	PKeyTable(port uint8) ([]uint16, error)
	// SelectGID chooses the entry for traffic to a peer and gives the reason.
	SelectGID(port uint8, peer netip.Addr) (GIDChoice, error)
	AllocPD() (DriverPD, error)
	// CreateCQ uses CompVector, WCFlags and Flags of opts, which is not nil. EOPNOTSUPP for fields and flags that
	// the device lacks.
	CreateCQ(cqe int, opts *CQOptions, up DriverCQEvents) (DriverCQ, error)

	// Optional.

	// OpenXRCD opens or creates the domain of the file behind fd, or creates one without a file if fd is -1.
	// flags are os.O_CREATE and os.O_EXCL; O_CREATE is set if fd is -1. EAGAIN if there is no domain and O_CREATE
	// is not set, EINVAL if there is a domain and O_EXCL is set, EBADF for a bad fd. The program owns fd and may
	// close it when OpenXRCD has returned.
	OpenXRCD(fd, flags int) (DriverXRCD, error)
	// AllocDM allocates length bytes, at least 1, aligned to 2^logAlign.
	AllocDM(length uint64, logAlign uint32) (DriverDM, error)
	CreateCounters() (DriverCounters, error)
	// CreateFlowActionESP makes an action from checked attributes, which it copies.
	CreateFlowActionESP(attr *FlowActionESPAttr) (DriverFlowAction, error)
	CreateRWQIndTable(wqs []DriverWQ) (DriverRWQIndTable, error)
	// RawClock reads the clock of the raw timestamps of completions.
	RawClock() (uint64, error)
}

// DriverPD is a protection domain.
type DriverPD interface {
	Dealloc() error
	RegMR(buf []byte, iova uint64, access AccessFlags) (DriverMR, error)
	CreateAH(attr AHAttr) (DriverHandle, error)
	// CreateQP, CreateSRQ and CreateWQ write the actual sizes, which are not below the requested sizes, to init.
	// init is a copy of the program's attributes. EOPNOTSUPP for features that the device lacks. SendOpsFlags
	// holds operations of the type only; such a QP implements PostSendAll. QPExWithAtomicWrite needs room for 8
	// bytes of inline data, which Cap then includes. With RWQIndTbl, RecvCQ is nil and SendCQ may be nil.
	CreateQP(init *QPInitAttr, up DriverQPEvents) (DriverQP, error)

	// Optional.

	// CreateSRQ makes an SRQ. One of type XRC has SRQN, one of type TM PostOps; all their completions go to init.CQ.
	CreateSRQ(init *SRQInitAttr, up DriverEvents) (DriverSRQ, error)
	// CreateWQ makes a work queue, in RESET.
	CreateWQ(init *WQInitAttr, up DriverEvents) (DriverWQ, error)
	// RegDMMR registers device memory. The region's addresses begin at 0.
	RegDMMR(dm DriverDM, offset, length uint64, access AccessFlags) (DriverMR, error)
	// RegDMABufMR registers memory of a dma-buf descriptor, which stays the program's. Its addresses begin at iova.
	RegDMABufMR(offset, length, iova uint64, fd int, access AccessFlags) (DriverMR, error)
	AllocNullMR() (DriverMR, error)
	// AdviseMR takes advice on regions with on-demand paging.
	AdviseMR(advice AdviseMRAdvice, flags AdviseMRFlags, list []SGE) error
	// AllocMW makes a memory window. The device may lack a type.
	AllocMW(t MWType) (DriverMW, error)
}

// DriverHandle is an address handle or a flow rule.
type DriverHandle interface {
	Destroy() error
}

// DriverMR is a memory region.
type DriverMR interface {
	LKey() uint32
	RKey() uint32
	// Rereg changes what is not nil; pd is the new domain. On failure the region is as it was. Optional.
	Rereg(pd DriverPD, buf []byte, iova uint64, access *AccessFlags) error
	Dereg() error
}

// DriverMW is a memory window. Binds are posted by PostSend with opcode WRBindMW, for windows of type 1 too; a bind
// without a region unbinds. A bind may come after Dealloc, from a goroutine that began before it; it then completes
// with WCMWBindErr.
type DriverMW interface {
	// RKey is the key after AllocMW.
	RKey() uint32
	Dealloc() error
}

// DriverDM is device memory. The verbs layer has checked that ranges are within it.
type DriverDM interface {
	CopyTo(offset uint64, src []byte) error
	CopyFrom(dst []byte, offset uint64) error
	Free() error
}

// DriverCQ is a completion queue.
type DriverCQ interface {
	Cap() int
	// Poll must not retain wcs or pass it to another goroutine: wcs may be on the caller's stack, unknown to the
	// compiler. It sets all fields of an element; the fields that struct ibv_wc lacks are 0 if the CQ was created
	// without any of them. Poll and ReqNotify may be called after Destroy, by a goroutine that began before it.
	Poll(wcs []WC) (int, error)
	ReqNotify(solicitedOnly bool) error
	Destroy() error

	// Optional.

	Resize(cqe int) error
	// PollOne is Poll for one completion and reports whether there was one. more is set if the call follows a
	// successful one in the same batch. Calls of one CQ are serial if the program keeps the rules.
	PollOne(wc *WC, more bool) (bool, error)
	// Moderate sets the moderation. m is within DeviceAttr.CQModCaps; all 0 is no moderation.
	Moderate(m ModerateCQ) error
}

// DriverSRQ is a shared receive queue.
type DriverSRQ interface {
	// PostRecv is as that of DriverQP.
	PostRecv(wrs []RecvWR) (int, error)
	// Modify writes the actual values to attr on success.
	Modify(attr *SRQAttr, mask SRQAttrMask) error
	Query() (SRQAttr, error)
	Destroy() error

	// Optional.

	// SRQN returns the number of an SRQ of type XRC, 24 bits, which peers use.
	SRQN() uint32
	// PostOps executes operations of an SRQ of type TM, sets the handles of added buffers, and returns the number
	// of executed operations. If err is not nil, the next operation is the bad one.
	PostOps(ops []OpsWR) (int, error)
}

// DriverQP is a queue pair.
type DriverQP interface {
	QPN() uint32
	// Modify makes a transition that the tables allow from the state that the last StateChanged reported. If the
	// device has moved the QP since, so that the transition is no longer allowed, Modify returns EINVAL. A
	// failure changes nothing. On success attr holds actual values. With QPAttrRateLimit it sets the rate limit
	// too.
	Modify(attr *QPAttr, mask QPAttrMask) error
	Query() (QPAttr, error)
	// PostSend and PostRecv return the number of posted requests; if err is not nil, the next one is the bad one.
	// They copy what they need: neither wrs nor the SGList, Inline or BindInfo of an element may be retained,
	// moved to the heap during the call, or passed to another goroutine, because they may be on the caller's
	// stack, unknown to the compiler. An AH or MW may be retained. Both may be called after Destroy, by a
	// goroutine that began before it, and then return an error.
	PostSend(wrs []SendWR) (int, error)
	PostRecv(wrs []RecvWR) (int, error)
	Destroy() error

	// Optional.

	// AttachMcast and DetachMcast take the group's MLID, which is checked on InfiniBand and of no use elsewhere.
	AttachMcast(gid GID, lid uint16) error
	DetachMcast(gid GID, lid uint16) error
	// PostSendAll posts all of wrs or nothing. With an error n is the index of the bad one. wrs is not on a
	// stack.
	PostSendAll(wrs []SendWR) (n int, err error)
	// CreateFlow activates a rule. It may retain attr. EOPNOTSUPP for features that the device lacks.
	CreateFlow(attr *FlowAttr) (DriverHandle, error)
	// ModifyRateLimit limits how fast the QP sends (PacketPacingCaps).
	ModifyRateLimit(attr QPRateLimitAttr) error
	// SetKeepAlive sets the idle time of a QP of type RC or XRC_SEND; 0 ends keep-alive.
	SetKeepAlive(idle time.Duration) error
	QueryECE() (ECE, error)
	// SetECE sets the peer's options. The QP is in RESET or INIT.
	SetECE(e ECE) error
}

// DriverCounters counts what flow rules match.
type DriverCounters interface {
	// Attach makes an existing rule count too, until it is destroyed. EOPNOTSUPP if the device cannot.
	Attach(flow DriverHandle) error
	Read() (packets, bytes uint64, err error)
	Destroy() error
}

// DriverFlowAction is an ESP action of flow rules.
type DriverFlowAction interface {
	// ModifyESP changes the attributes that are not nil, for all rules at once. The attributes are checked.
	ModifyESP(attr *FlowActionESPAttr) error
	Destroy() error
}

// DriverWQ is a work queue.
type DriverWQ interface {
	WQN() uint32
	// State is the state, which may change by itself to ERR.
	State() WQState
	// Modify makes a transition that the table allows from the given state, or none if to is the same, and sets
	// the flags in mask. EINVAL if the queue is in another state. A failure changes nothing.
	Modify(from, to WQState, flags, mask WQFlags) error
	// PostRecv is as that of DriverQP; EINVAL in RESET.
	PostRecv(wrs []RecvWR) (int, error)
	Destroy() error
}

// DriverRWQIndTable is an indirection table.
type DriverRWQIndTable interface {
	Num() uint32
	Destroy() error
}

// DriverXRCD is one context's handle of an XRC domain.
type DriverXRCD interface {
	// CreateQP makes an XRC_RECV QP, which has neither queues nor CQs.
	CreateQP(init *QPInitAttr, up DriverQPEvents) (DriverQP, error)
	// OpenQP returns another handle of an XRC_RECV QP of the domain; EINVAL without such a QP. Each handle gets
	// all events and, through StateChanged, the moves made through other handles. Destroying the last handle
	// destroys the QP.
	OpenQP(qpn uint32, up DriverQPEvents) (DriverQP, error)
	// Close gives the domain up. The last one to do so ends it.
	Close() error
}

func init() {
	seam.Register = func(p any) { register(p.(DriverProvider)) }
	seam.NewDevice = func(drv any) any { return newDevice(drv.(DriverDevice)) }
	seam.Of = driverOf
	seam.Absent = absent
	seam.CountEvents = func(of any, fd int) error {
		switch o := of.(type) {
		case *CompChannel:
			return o.q.count(fd, "comp_channel_fd", o)
		case *Context:
			return o.async.count(fd, "async_fd", o)
		}
		return newError("count_events", "", EINVAL, "must be of a completion channel or a context")
	}
	seam.OnEvent = func(ch any, f func()) { ch.(*CompChannel).q.onEvent(f) }
	seam.WatchQP = func(qp any, first *atomic.Uint32, f func(event uint32)) {
		qp.(*QP).watch.Store(&qpWatch{first, f})
	}
	seam.CreateQP = func(op string, pd, init, create any) (any, error) {
		return pd.(*PD).createQP(op, init.(*QPInitAttr), create.(func(*QPInitAttr, DriverQPEvents) (DriverQP, error)))
	}
	seam.CheckModify = func(ctx, qp, typ, attr, mask any) error {
		return checkDriverModify(ctx.(DriverContext), qp.(DriverQP), typ.(QPType), attr.(*QPAttr), mask.(QPAttrMask))
	}
}

// driverOf returns the driver's object of an object of this package. Posting a UD request calls it, so AH is first.
func driverOf(object any) any {
	switch o := object.(type) {
	case *AH:
		if o != nil {
			return o.drv
		}
	case *MW:
		if o != nil {
			return o.drv
		}
	case *CQ:
		if o != nil {
			return o.drv
		}
	case *SRQ:
		if o != nil {
			return o.drv
		}
	case *XRCD:
		if o != nil {
			return o.drv
		}
	case *RWQIndTable:
		if o != nil {
			return o.drv
		}
	case *Counters:
		return o.drv
	case *FlowAction:
		return o.drv
	case *PD:
		return o.drv
	case *QP:
		return o.drv
	case *WQ:
		return o.drv
	case *MR:
		return o.drv
	case *Flow:
		return o.drv
	case *Context:
		return o.drv
	case *Device:
		return o.drv
	}
	return nil
}
