package verbs

import (
	"fmt"
	"sync"
)

// WQType is the kind of a work queue (enum ibv_wq_type).
type WQType uint32

// WQTypeRQ is a queue of receives (IBV_WQT_RQ).
const WQTypeRQ WQType = 0

// String is the name without IBV_WQT_.
func (t WQType) String() string { return nameOf("WQType", []string{"RQ"}, int64(t)) }

// WQState is the state of a work queue (enum ibv_wq_state).
type WQState uint32

// The states (IBV_WQS_*).
const (
	WQSReset   WQState = 0
	WQSReady   WQState = 1 // RDY
	WQSErr     WQState = 2
	WQSUnknown WQState = 3
)

var wqStateNames = []string{"RESET", "RDY", "ERR", "UNKNOWN"}

// String is the name without IBV_WQS_.
func (s WQState) String() string { return nameOf("WQState", wqStateNames, int64(s)) }

// WQFlags modify a work queue (enum ibv_wq_flags).
type WQFlags uint32

// The flags (IBV_WQ_FLAGS_*).
const (
	WQCVLANStripping     WQFlags = 1 << 0 // receives do not include the VLAN tag; CQEx.ReadCVLAN has it
	WQScatterFCS         WQFlags = 1 << 1 // receives include the frame check sequence
	WQDelayDrop          WQFlags = 1 << 2 // a frame waits for a receive to be posted, for a while
	WQPCIWriteEndPadding WQFlags = 1 << 3

	wqFlagsAll = WQCVLANStripping | WQScatterFCS | WQDelayDrop | WQPCIWriteEndPadding
)

var wqFlagNames = []string{"CVLAN_STRIPPING", "SCATTER_FCS", "DELAY_DROP", "PCI_WRITE_END_PADDING"}

// String joins the names of the flags without IBV_WQ_FLAGS_.
func (f WQFlags) String() string { return flagsOf(wqFlagNames, uint64(f), "|") }

// WQInitAttrMask names fields of WQInitAttr (enum ibv_wq_init_attr_mask).
type WQInitAttrMask uint32

// WQInitFlags names WQInitAttr.CreateFlags (IBV_WQ_INIT_ATTR_FLAGS).
const WQInitFlags WQInitAttrMask = 1 << 0

// String joins the names of the bits without IBV_WQ_INIT_ATTR_.
func (m WQInitAttrMask) String() string { return flagsOf([]string{"FLAGS"}, uint64(m), "|") }

// WQAttrMask tells what WQ.Modify changes (enum ibv_wq_attr_mask).
type WQAttrMask uint32

// The attributes (IBV_WQ_ATTR_*).
const (
	WQAttrState     WQAttrMask = 1 << 0
	WQAttrCurrState WQAttrMask = 1 << 1
	WQAttrFlags     WQAttrMask = 1 << 2

	wqAttrAll = WQAttrState | WQAttrCurrState | WQAttrFlags
)

// String joins the names of the bits without IBV_WQ_ATTR_.
func (m WQAttrMask) String() string {
	return flagsOf([]string{"STATE", "CURR_STATE", "FLAGS"}, uint64(m), "|")
}

// WQInitAttr says what work queue to make (struct ibv_wq_init_attr). CreateFlags counts if CompMask names it or is 0.
type WQInitAttr struct {
	Context     any
	Type        WQType
	MaxWR       uint32 // outstanding receives, 1..MaxQPWR
	MaxSGE      uint32 // SGEs of each, 1..MaxSGE
	PD          *PD    // whose memory receives name
	CQ          *CQ
	CompMask    WQInitAttrMask
	CreateFlags WQFlags
}

// WQAttr is what WQ.Modify changes (struct ibv_wq_attr). AttrMask names the fields that count. FlagsMask names the flags that Flags sets
// or clears: of WQCVLANStripping.
type WQAttr struct {
	AttrMask  WQAttrMask
	State     WQState
	CurrState WQState
	Flags     WQFlags
	FlagsMask WQFlags
}

// WQ is a work queue: receives that QPs spread frames over, by an RWQIndTable (struct ibv_wq). It is safe for concurrent
// use.
//
// A new WQ is in RESET. Modify takes it to RDY, where it receives, to ERR, where its receives are flushed, and back to RESET. An error,
// of memory that a receive names or of the CQ, moves it to ERR by itself.
type WQ struct {
	pd      *PD
	cq      *CQ
	drv     WQDriver
	init    WQInitAttr // with actual sizes
	life    life
	mu      sync.Mutex // serialises Modify and Close
	asyncEv ackCount
}

// CreateWQ makes a work queue (ibv_create_wq). init gets the actual sizes, which are not below those asked for. EINVAL for bad objects, sizes or
// flags, EOPNOTSUPP for flags that the device lacks, ENOSYS if it has no work queues, ENOMEM without resources.
func (ctx *Context) CreateWQ(init *WQInitAttr) (*WQ, error) {
	const op = "create_wq"
	if init == nil {
		return nil, newError(op, ctx.obj(), EINVAL, "there are no attributes")
	}
	wq := &WQ{init: *init}
	if init.CompMask != 0 && init.CompMask&WQInitFlags == 0 {
		wq.init.CreateFlags = 0
	}
	if err := wq.init.check(ctx); err != nil {
		return nil, badInput(op, ctx.obj(), err)
	}
	wq.pd, wq.cq = init.PD, init.CQ
	creator, ok := wq.pd.drv.(WQCreator)
	if !ok {
		return nil, newError(op, ctx.obj(), ENOSYS, "the device has no work queues")
	}
	if err := use(op, kindWQ, wq.parents()); err != nil {
		return nil, err
	}
	want := &WQDriverInit{MaxWR: init.MaxWR, MaxSGE: init.MaxSGE, CQ: wq.cq.drv, Flags: wq.init.CreateFlags}
	var err error
	if wq.drv, err = creator.CreateWQ(want, (*wqUpcalls)(wq)); err != nil {
		drop(kindWQ, wq.parents())
		return nil, driverError(op, ctx.obj(), err)
	}
	wq.init.MaxWR, wq.init.MaxSGE = want.MaxWR, want.MaxSGE
	init.MaxWR, init.MaxSGE = want.MaxWR, want.MaxSGE
	return wq, nil
}

// check says what is wrong with the attributes of a new WQ.
func (i *WQInitAttr) check(ctx *Context) error {
	d := &ctx.attr
	switch {
	case i.CompMask&^WQInitFlags != 0:
		return fmt.Errorf("unknown fields %v; there is %v", i.CompMask&^WQInitFlags, WQInitFlags)
	case i.Type != WQTypeRQ:
		return fmt.Errorf("%v is not a type of work queue; RQ is", i.Type)
	case i.PD == nil || i.PD.ctx != ctx:
		return fmt.Errorf("a work queue needs a PD of its context")
	case i.CQ == nil || i.CQ.ctx != ctx:
		return fmt.Errorf("a work queue needs a CQ of its context")
	case i.CreateFlags&^wqFlagsAll != 0:
		return fmt.Errorf("unknown flags %v; there are %v", i.CreateFlags&^wqFlagsAll, wqFlagsAll)
	case i.MaxWR < 1 || int64(i.MaxWR) > int64(d.MaxQPWR):
		return fmt.Errorf("MaxWR %d is not possible; 1 to %d are", i.MaxWR, d.MaxQPWR)
	case i.MaxSGE < 1 || int64(i.MaxSGE) > int64(d.MaxSGE):
		return fmt.Errorf("MaxSGE %d is not possible; 1 to %d are", i.MaxSGE, d.MaxSGE)
	}
	return nil
}

func (wq *WQ) parents() []parent {
	return []parent{{&wq.pd.life, wq.pd.obj()}, {&wq.cq.life, "CQ"}}
}

// WQN is the queue's number (wq_num).
func (wq *WQ) WQN() uint32 { return wq.drv.WQN() }

// State is the queue's state, which the device may change at any time (state of struct ibv_wq).
func (wq *WQ) State() WQState { return wq.drv.State() }

// Type is the queue's type (wq_type).
func (wq *WQ) Type() WQType { return wq.init.Type }

// PD is the protection domain whose memory the queue's receives name.
func (wq *WQ) PD() *PD { return wq.pd }

// CQ is the completion queue of the receives.
func (wq *WQ) CQ() *CQ { return wq.cq }

// Context is the context that the queue belongs to.
func (wq *WQ) Context() *Context { return wq.pd.ctx }

// WQContext is WQInitAttr.Context (wq_context).
func (wq *WQ) WQContext() any { return wq.init.Context }

// Driver gives providers the driver object of the queue.
func (wq *WQ) Driver() WQDriver { return wq.drv }

func (wq *WQ) obj() string { return "WQ of " + wq.pd.ctx.obj() }

// PostRecv posts receives in order, as QP.PostRecv does (ibv_post_wq_recv). EINVAL in RESET, ENOMEM if the queue is full. In ERR they
// are flushed.
func (wq *WQ) PostRecv(wrs ...RecvWR) error {
	const op = "post_wq_recv"
	if wq.life.closed.Load() {
		return &PostError{Err: errClosed(op, wq.obj())}
	}
	return postRecv(op, wq, wq.drv, noescape(wrs), wq.init.MaxSGE)
}

// Modify changes the state, from RESET to RDY, from any to ERR or from ERR to RESET, and flags (ibv_modify_wq). With WQAttrCurrState
// the queue must be in that state. EINVAL otherwise, EOPNOTSUPP for flags that cannot be changed. A failure changes
// nothing.
func (wq *WQ) Modify(attr *WQAttr) error {
	const op = "modify_wq"
	wq.mu.Lock()
	defer wq.mu.Unlock()
	switch {
	case wq.life.closed.Load():
		return errClosed(op, wq.obj())
	case attr == nil:
		return newError(op, wq.obj(), EINVAL, "there are no attributes")
	case attr.AttrMask&^wqAttrAll != 0:
		return newError(op, wq.obj(), EINVAL, "unknown attributes %v; there are %v", attr.AttrMask&^wqAttrAll, wqAttrAll)
	}
	from := wq.drv.State()
	to, flags, mask := from, WQFlags(0), WQFlags(0)
	if attr.AttrMask&WQAttrCurrState != 0 && attr.CurrState != from {
		return newError(op, wq.obj(), EINVAL, "the queue is in %v, not in %v as CURR_STATE says", from, attr.CurrState)
	}
	if attr.AttrMask&WQAttrState != 0 {
		to = attr.State
		if !wqMoves[[2]WQState{from, to}] {
			return newError(op, wq.obj(), EINVAL, "%v->%v is not possible; RESET->RDY, any->ERR and ERR->RESET are", from, to)
		}
	}
	if attr.AttrMask&WQAttrFlags != 0 {
		flags, mask = attr.Flags, attr.FlagsMask
		if unknown := (flags | mask) &^ wqFlagsAll; unknown != 0 {
			return newError(op, wq.obj(), EINVAL, "unknown flags %v; there are %v", unknown, wqFlagsAll)
		}
		if fixed := mask &^ WQCVLANStripping; fixed != 0 {
			return newError(op, wq.obj(), EOPNOTSUPP, "%v cannot be changed; %v can", fixed, WQCVLANStripping)
		}
	}
	return driverError(op, wq.obj(), wq.drv.Modify(from, to, flags, mask))
}

// wqMoves are the transitions.
var wqMoves = map[[2]WQState]bool{
	{WQSReset, WQSReady}: true,
	{WQSReset, WQSErr}:   true,
	{WQSReady, WQSErr}:   true,
	{WQSErr, WQSErr}:     true,
	{WQSErr, WQSReset}:   true,
}

// Close destroys the queue with its receives (ibv_destroy_wq). EBUSY while indirection tables have it. It blocks until the
// asynchronous events of the queue that were got are acknowledged.
func (wq *WQ) Close() error {
	const op = "destroy_wq"
	if err := wq.destroy(op); err != nil {
		return err
	}
	wq.pd.ctx.async.purge(&wq.asyncEv)
	drop(kindWQ, wq.parents())
	wq.asyncEv.wait()
	return nil
}

func (wq *WQ) destroy(op string) error {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if err := wq.life.end(op, wq.obj()); err != nil {
		return err
	}
	if err := destroyed(wq.drv.Destroy()); err != nil {
		wq.life.revive()
		return driverError(op, wq.obj(), err)
	}
	return nil
}

// wqUpcalls is how the driver sees a WQ.
type wqUpcalls WQ

func (up *wqUpcalls) Event(t EventType) {
	wq := (*WQ)(up)
	wq.pd.ctx.raise(AsyncEvent{Type: t, WQ: wq, of: &wq.asyncEv})
}
