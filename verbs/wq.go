package verbs

import (
	"fmt"
	"sync"
)

// WQType is the kind of a work queue (enum ibv_wq_type).
type WQType uint32

// WQTypeRQ is a queue of receives (IBV_WQT_RQ).
const WQTypeRQ WQType = 0

// String returns the name without IBV_WQT_.
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

// String returns the name without IBV_WQS_.
func (s WQState) String() string { return nameOf("WQState", wqStateNames, int64(s)) }

// WQFlags modify a work queue (enum ibv_wq_flags).
type WQFlags uint32

// The flags (IBV_WQ_FLAGS_*).
const (
	WQCVLANStripping     WQFlags = 1 << 0 // receives do not include the VLAN tag; WC.CVLAN has it
	WQScatterFCS         WQFlags = 1 << 1 // receives include the frame check sequence
	WQDelayDrop          WQFlags = 1 << 2 // a frame waits for a receive to be posted, for a while
	WQPCIWriteEndPadding WQFlags = 1 << 3

	wqFlagsAll = WQCVLANStripping | WQScatterFCS | WQDelayDrop | WQPCIWriteEndPadding
)

var wqFlagNames = []string{"CVLAN_STRIPPING", "SCATTER_FCS", "DELAY_DROP", "PCI_WRITE_END_PADDING"}

// String joins the names of the flags without IBV_WQ_FLAGS_.
func (f WQFlags) String() string { return flagsOf(wqFlagNames, uint64(f), "|") }

// WQAttrMask names the attributes that WQ.Modify changes (enum ibv_wq_attr_mask).
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

// WQInitAttr holds the attributes of a new work queue (struct ibv_wq_init_attr, enum ibv_wq_init_attr_mask).
type WQInitAttr struct {
	Context     any // returned by WQ.WQContext
	Type        WQType
	MaxWR       uint32 // outstanding receives, 1 to MaxQPWR
	MaxSGE      uint32 // SGEs of a receive, 1 to MaxSGE
	PD          *PD    // of the memory that receives name
	CQ          *CQ
	CreateFlags WQFlags
}

// WQAttr holds the attributes of WQ.Modify (struct ibv_wq_attr). AttrMask names the valid fields. FlagsMask names the
// flags that Flags sets or clears: WQCVLANStripping.
type WQAttr struct {
	AttrMask  WQAttrMask
	State     WQState
	CurrState WQState
	Flags     WQFlags
	FlagsMask WQFlags
}

// WQ is a work queue: a receive queue over which QPs spread frames by an RWQIndTable (struct ibv_wq). It is safe for
// concurrent use.
//
// A new WQ is in RESET. Modify moves it to RDY, where it receives, to ERR, where its receives are flushed, and back
// to RESET. A frame longer than its receive, and an error of the memory of a receive or of the CQ, move it to ERR.
type WQ struct {
	pd       *PD
	cq       *CQ
	drv      DriverWQ
	num      uint32
	init     WQInitAttr // with actual sizes
	lifetime lifetime
	mu       sync.Mutex // serialises Modify and Close
	asyncEv  ackCount
}

// CreateWQ creates a work queue (ibv_create_wq). init is copied and gets the actual sizes, which are not below the
// requested sizes. EINVAL for bad objects, sizes or flags, EOPNOTSUPP for flags that the device lacks, ENOSYS if it
// has no work queues, ENOMEM without resources.
func (vctx *Context) CreateWQ(init *WQInitAttr) (*WQ, error) {
	const op = "create_wq"
	if init == nil {
		return nil, newError(op, vctx.obj(), EINVAL, "the attributes are nil")
	}
	wq := &WQ{init: *init}
	if err := wq.init.check(vctx); err != nil {
		return nil, badInput(op, vctx.obj(), err)
	}
	wq.pd, wq.cq = init.PD, init.CQ
	if err := vctx.checkRemoved(op, vctx); err != nil {
		return nil, err
	}
	if err := use(op, kindWQ, wq.parents()); err != nil {
		return nil, err
	}
	want := wq.init
	var err error
	if wq.drv, err = wq.pd.drv.CreateWQ(&want, (*wqEvents)(wq)); err != nil {
		drop(kindWQ, wq.parents())
		return nil, driverError(op, vctx.obj(), err)
	}
	wq.num = wq.drv.WQN()
	wq.init.MaxWR, wq.init.MaxSGE = want.MaxWR, want.MaxSGE
	init.MaxWR, init.MaxSGE = want.MaxWR, want.MaxSGE
	return wq, nil
}

// check checks the attributes of a new WQ.
func (i *WQInitAttr) check(vctx *Context) error {
	d := &vctx.attr
	switch {
	case i.Type != WQTypeRQ:
		return fmt.Errorf("unknown WQ type %v; must be RQ", i.Type)
	case i.PD == nil || i.PD.ctx != vctx:
		return fmt.Errorf("a work queue needs a PD of its context")
	case i.CQ == nil || i.CQ.ctx != vctx:
		return fmt.Errorf("a work queue needs a CQ of its context")
	case i.CreateFlags&^wqFlagsAll != 0:
		return fmt.Errorf("unknown flags %v; must be of %v", i.CreateFlags&^wqFlagsAll, wqFlagsAll)
	case i.MaxWR < 1 || int64(i.MaxWR) > int64(d.MaxQPWR):
		return fmt.Errorf("MaxWR %d: must be 1 to %d", i.MaxWR, d.MaxQPWR)
	case i.MaxSGE < 1 || int64(i.MaxSGE) > int64(d.MaxSGE):
		return fmt.Errorf("MaxSGE %d: must be 1 to %d", i.MaxSGE, d.MaxSGE)
	}
	return nil
}

func (wq *WQ) parents() []parent {
	return []parent{{&wq.pd.lifetime, wq.pd}, {&wq.cq.lifetime, role("CQ")}}
}

// WQN returns the queue's number (wq_num).
func (wq *WQ) WQN() uint32 { return wq.num }

// State returns the queue's state, which the device may change at any time (state of struct ibv_wq).
func (wq *WQ) State() WQState { return wq.drv.State() }

// Type returns the queue's type (wq_type).
func (wq *WQ) Type() WQType { return wq.init.Type }

// PD returns the protection domain of the memory that receives name.
func (wq *WQ) PD() *PD { return wq.pd }

// CQ returns the completion queue of the receives.
func (wq *WQ) CQ() *CQ { return wq.cq }

// Context returns the context of the queue.
func (wq *WQ) Context() *Context { return wq.pd.ctx }

// WQContext returns WQInitAttr.Context (wq_context).
func (wq *WQ) WQContext() any { return wq.init.Context }

func (wq *WQ) obj() string { return "WQ of " + wq.pd.ctx.obj() }

// PostRecv posts receives in order, as QP.PostRecv does (ibv_post_wq_recv). In ERR they are flushed. EINVAL in RESET,
// ENOMEM if the queue is full.
func (wq *WQ) PostRecv(wrs ...RecvWR) error {
	const op = "post_wq_recv"
	if wq.lifetime.closed.Load() {
		return &PostError{Err: errClosed(op, wq.obj())}
	}
	return postRecv(op, wq, wq.drv, noescape(wrs), wq.init.MaxSGE)
}

// Modify changes the state, from RESET to RDY, from any to ERR or from ERR to RESET, and the flags (ibv_modify_wq).
// With WQAttrCurrState the queue must be in CurrState. A failure changes nothing. EINVAL for other transitions,
// EOPNOTSUPP for flags that cannot be changed.
func (wq *WQ) Modify(attr *WQAttr) error {
	const op = "modify_wq"
	wq.mu.Lock()
	defer wq.mu.Unlock()
	switch {
	case wq.lifetime.closed.Load():
		return errClosed(op, wq.obj())
	case wq.pd.ctx.isRemoved():
		return errRemoved(op, wq)
	case attr == nil:
		return newError(op, wq.obj(), EINVAL, "the attributes are nil")
	case attr.AttrMask&^wqAttrAll != 0:
		return newError(op, wq.obj(), EINVAL, "unknown attributes %v; must be of %v", attr.AttrMask&^wqAttrAll, wqAttrAll)
	}
	from := wq.drv.State()
	to, flags, mask := from, WQFlags(0), WQFlags(0)
	if attr.AttrMask&WQAttrCurrState != 0 && attr.CurrState != from {
		return newError(op, wq.obj(), EINVAL, "CURR_STATE %v: the queue is in %v", attr.CurrState, from)
	}
	if attr.AttrMask&WQAttrState != 0 {
		to = attr.State
		if !wqMoves[[2]WQState{from, to}] {
			return newError(op, wq.obj(), EINVAL, "%v->%v: must be RESET->RDY, any->ERR or ERR->RESET", from, to)
		}
	}
	if attr.AttrMask&WQAttrFlags != 0 {
		flags, mask = attr.Flags, attr.FlagsMask
		if unknown := (flags | mask) &^ wqFlagsAll; unknown != 0 {
			return newError(op, wq.obj(), EINVAL, "unknown flags %v; must be of %v", unknown, wqFlagsAll)
		}
		if fixed := mask &^ WQCVLANStripping; fixed != 0 {
			return newError(op, wq.obj(), EOPNOTSUPP, "%v cannot be changed: must be of %v", fixed, WQCVLANStripping)
		}
	}
	return driverError(op, wq.obj(), wq.drv.Modify(from, to, flags, mask))
}

// wqMoves holds the transitions.
var wqMoves = map[[2]WQState]bool{
	{WQSReset, WQSReady}: true,
	{WQSReset, WQSErr}:   true,
	{WQSReady, WQSErr}:   true,
	{WQSErr, WQSErr}:     true,
	{WQSErr, WQSReset}:   true,
}

// Close destroys the queue with its receives (ibv_destroy_wq). EBUSY while indirection tables use it. It blocks,
// without a time-out, until all delivered asynchronous events of the queue are acknowledged.
func (wq *WQ) Close() error {
	const op = "destroy_wq"
	if err := wq.destroy(op); err != nil {
		return err
	}
	wq.pd.ctx.async.purge(&wq.asyncEv)
	drop(kindWQ, wq.parents())
	wq.asyncEv.wait()
	return wq.pd.ctx.ended(op, wq)
}

func (wq *WQ) destroy(op string) error {
	wq.mu.Lock()
	defer wq.mu.Unlock()
	if err := wq.lifetime.close(op, wq); err != nil {
		return err
	}
	if err := destroyed(wq.drv.Destroy()); err != nil {
		wq.lifetime.reopen()
		return driverError(op, wq.obj(), err)
	}
	return nil
}

// wqEvents receives the events of the driver for a WQ.
type wqEvents WQ

func (up *wqEvents) Event(t EventType) {
	wq := (*WQ)(up)
	wq.pd.ctx.raise(AsyncEvent{Type: t, WQ: wq, of: &wq.asyncEv})
}
