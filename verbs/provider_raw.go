package verbs

// FlowCreator is a QPDriver that has flow rules (DeviceManagedFlowSteering).
type FlowCreator interface {
	// CreateFlow puts a rule in force. It may keep attr. Counters.Driver tells what a FlowSpecActionCount counts into. EOPNOTSUPP for
	// what the device lacks.
	CreateFlow(attr *FlowAttr) (FlowDriver, error)
}

// FlowDriver is a flow rule.
type FlowDriver interface {
	Destroy() error
}

// CountersCreator is a ContextDriver that has counters.
type CountersCreator interface {
	CreateCounters() (CountersDriver, error)
}

// CountersDriver counts what flow rules match.
type CountersDriver interface {
	// Attach makes a rule that exists count too, until it is destroyed; EOPNOTSUPP if that is not possible.
	Attach(flow FlowDriver) error
	Read() (packets, bytes uint64, err error)
	Destroy() error
}

// WQCreator is a PDDriver that has work queues.
type WQCreator interface {
	// CreateWQ makes a work queue, in RESET, and puts actual sizes in init. EOPNOTSUPP for flags that the device lacks.
	CreateWQ(init *WQDriverInit, up WQUpcalls) (WQDriver, error)
}

// WQDriverInit is WQInitAttr in the driver's terms.
type WQDriverInit struct {
	MaxWR, MaxSGE uint32
	CQ            CQDriver
	Flags         WQFlags
}

// WQUpcalls is how a driver reports what happens to a work queue.
type WQUpcalls interface {
	Event(t EventType)
}

// WQDriver is a work queue.
type WQDriver interface {
	WQN() uint32
	// State is the state, which may change by itself to ERR.
	State() WQState
	// Modify makes a transition that the table allows from the given state, or none if to is the same, and sets flags, as far as mask
	// names them. If the queue is in another state it answers EINVAL. A failure changes nothing.
	Modify(from, to WQState, flags, mask WQFlags) error
	// PostRecv is as that of QPDriver; EINVAL in RESET.
	PostRecv(wrs []RecvWR) (int, error)
	Destroy() error
}

// RWQIndTableCreator is a ContextDriver that has indirection tables.
type RWQIndTableCreator interface {
	CreateRWQIndTable(wqs []WQDriver) (RWQIndTableDriver, error)
}

// RWQIndTableDriver is an indirection table.
type RWQIndTableDriver interface {
	Num() uint32
	Destroy() error
}

// RateLimiter is a QPDriver that can limit how fast it sends (PacketPacingCaps). Modify with QPAttrRateLimit sets the rate too.
type RateLimiter interface {
	ModifyRateLimit(attr QPRateLimitAttr) error
}
