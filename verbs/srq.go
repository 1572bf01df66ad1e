package verbs

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// SRQ is a shared receive queue: several QPs take their receives from it (struct ibv_srq). It is safe for concurrent
// use.
type SRQ struct {
	pd       *PD
	xrcd     *XRCD // this and num: of type XRC
	cq       *CQ   // types XRC and TM
	num      uint32
	tm       TMCap  // this and tmSGE: of type TM
	tmSGE    uint32 // SGEs of a buffer with a tag
	drv      DriverSRQ
	context  any
	lifetime lifetime
	mu       sync.Mutex // serialises Modify, Query, PostOps and Close
	maxSGE   atomic.Uint32
	asyncEv  ackCount
}

// CreateSRQ creates a shared receive queue (ibv_create_srq, ibv_create_srq_ex). init is copied; init.Attr gets the
// actual sizes, which are not below the requested sizes. MaxWR is 1 to MaxSRQWR, MaxSGE 1 to MaxSRQSGE.
//
// An SRQ of type XRC has a CQ of its own, for the completions of all that XRC_RECV QPs of its domain receive for it,
// and a number, which peers put in RemoteSRQN; see SRQ.Num.
//
// An SRQ of type TM matches tags; see SRQ.PostOps. TMCap.MaxNumTags is 1 to TMCaps.MaxNumTags, MaxOps 1 to
// TMCaps.MaxOps. Its QPs must be of type RC; their receives complete in its CQ, not in their RecvCQ.
//
// Errors: EINVAL if fields that the type needs are missing, or sizes are out of range. ENOSYS if the device has no
// SRQs. EOPNOTSUPP if it lacks the type. ENOMEM without resources.
func (pd *PD) CreateSRQ(init *SRQInitAttr) (*SRQ, error) {
	const op = "create_srq"
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "the attributes are nil")
	}
	a := *init
	if err := a.check(pd.ctx); err != nil {
		return nil, badInput(op, pd.obj(), err)
	}
	srq := &SRQ{pd: pd, xrcd: a.XRCD, cq: a.CQ, context: a.Context}
	if err := pd.ctx.checkRemoved(op, pd); err != nil {
		return nil, err
	}
	if err := use(op, kindSRQ, srq.parents()); err != nil {
		return nil, err
	}
	a.Attr.SRQLimit = 0
	err := pd.ctx.checkSRQ(op, pd.obj(), &a.Attr)
	if err == nil {
		srq.drv, err = pd.drv.CreateSRQ(&a, (*srqEvents)(srq))
		err = driverError(op, pd.obj(), err)
	}
	if err != nil {
		drop(kindSRQ, srq.parents())
		return nil, err
	}
	srq.maxSGE.Store(a.Attr.MaxSGE)
	switch a.Type {
	case SRQTypeXRC:
		srq.num = srq.drv.SRQN()
	case SRQTypeTM:
		srq.tm, srq.tmSGE = a.TMCap, pd.ctx.attr.TMCaps.MaxSGE
	}
	init.Attr, init.TMCap = a.Attr, a.TMCap
	return srq, nil
}

// parents lists the objects that the SRQ uses.
func (srq *SRQ) parents() []parent {
	list := []parent{{&srq.pd.lifetime, srq.pd}}
	if srq.xrcd != nil {
		list = append(list, parent{&srq.xrcd.lifetime, srq.xrcd})
	}
	if srq.cq != nil {
		list = append(list, parent{&srq.cq.lifetime, role("CQ")})
	}
	return list
}

// checkSRQ checks the sizes of an SRQ.
func (vctx *Context) checkSRQ(op, obj string, a *SRQAttr) error {
	switch d := &vctx.attr; {
	case d.MaxSRQ == 0:
		return newError(op, obj, ENOSYS, "the device has no SRQs")
	case a.MaxWR < 1 || int64(a.MaxWR) > int64(d.MaxSRQWR):
		return newError(op, obj, EINVAL, "MaxWR %d: must be 1 to %d", a.MaxWR, d.MaxSRQWR)
	case a.MaxSGE < 1 || int64(a.MaxSGE) > int64(d.MaxSRQSGE):
		return newError(op, obj, EINVAL, "MaxSGE %d: must be 1 to %d", a.MaxSGE, d.MaxSRQSGE)
	}
	return nil
}

// PD returns the protection domain of the SRQ.
func (srq *SRQ) PD() *PD { return srq.pd }

// Context returns the context of the SRQ.
func (srq *SRQ) Context() *Context { return srq.pd.ctx }

// SRQContext returns SRQInitAttr.Context (srq_context).
func (srq *SRQ) SRQContext() any { return srq.context }

func (srq *SRQ) obj() string { return "SRQ of " + srq.pd.ctx.obj() }

// PostRecv posts receives in order, as QP.PostRecv does (ibv_post_srq_recv).
func (srq *SRQ) PostRecv(wrs ...RecvWR) error {
	const op = "post_srq_recv"
	if srq.lifetime.closed.Load() {
		return &PostError{Err: errClosed(op, srq.obj())}
	}
	return postRecv(op, srq, srq.drv, noescape(wrs), srq.maxSGE.Load())
}

// Modify changes the sizes (SRQAttrMaxWR), arms the limit (SRQAttrLimit), or both (ibv_modify_srq). MaxSGE 0 stands for
// no change: C programs set max_wr only. When fewer receives than the limit are left EventSRQLimitReached is raised
// once and the limit becomes 0; 0 disarms. Resizing needs DeviceSRQResize, else ENOSYS. On success attr holds actual
// values. A failure, EINVAL for bad values, changes nothing.
func (srq *SRQ) Modify(attr *SRQAttr, mask SRQAttrMask) error {
	const op = "modify_srq"
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.lifetime.closed.Load() {
		return errClosed(op, srq.obj())
	}
	if err := srq.pd.ctx.checkRemoved(op, srq); err != nil {
		return err
	}
	if attr == nil {
		return newError(op, srq.obj(), EINVAL, "the attributes are nil")
	}
	if unknown := mask &^ (SRQAttrMaxWR | SRQAttrLimit); unknown != 0 {
		return newError(op, srq.obj(), EINVAL, "unknown attributes %v", unknown)
	}
	now, err := srq.drv.Query()
	if err != nil {
		return driverError(op, srq.obj(), err)
	}
	next := *attr
	if mask&SRQAttrMaxWR != 0 {
		if srq.pd.ctx.attr.DeviceCapFlags&DeviceSRQResize == 0 {
			return newError(op, srq.obj(), ENOSYS, "the device does not resize SRQs")
		}
		if next.MaxSGE == 0 {
			next.MaxSGE = now.MaxSGE
		}
		if err := srq.pd.ctx.checkSRQ(op, srq.obj(), &next); err != nil {
			return err
		}
		now.MaxWR = next.MaxWR
	}
	if mask&SRQAttrLimit != 0 && next.SRQLimit > now.MaxWR {
		return newError(op, srq.obj(), EINVAL, "limit %d: must be 0 to %d", next.SRQLimit, now.MaxWR)
	}
	if mask == 0 {
		return nil
	}
	if err := srq.drv.Modify(&next, mask); err != nil {
		return driverError(op, srq.obj(), err)
	}
	if mask&SRQAttrMaxWR != 0 {
		srq.maxSGE.Store(next.MaxSGE)
	}
	*attr = next
	return nil
}

// Query returns the sizes and the limit (ibv_query_srq). Limit 0 is not armed.
func (srq *SRQ) Query() (SRQAttr, error) {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.lifetime.closed.Load() {
		return SRQAttr{}, errClosed("query_srq", srq.obj())
	}
	if err := srq.pd.ctx.checkRemoved("query_srq", srq); err != nil {
		return SRQAttr{}, err
	}
	attr, err := srq.drv.Query()
	return attr, driverError("query_srq", srq.obj(), err)
}

// Close destroys the SRQ with the receives in it (ibv_destroy_srq). EBUSY while QPs use it. It blocks, without a
// time-out, until all delivered asynchronous events of the SRQ are acknowledged.
func (srq *SRQ) Close() error {
	const op = "destroy_srq"
	if err := srq.destroy(op); err != nil {
		return err
	}
	srq.pd.ctx.async.purge(&srq.asyncEv)
	drop(kindSRQ, srq.parents())
	srq.asyncEv.wait()
	return srq.pd.ctx.ended(op, srq)
}

func (srq *SRQ) destroy(op string) error {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if err := srq.lifetime.close(op, srq); err != nil {
		return err
	}
	if err := destroyed(srq.drv.Destroy()); err != nil {
		srq.lifetime.reopen()
		return driverError(op, srq.obj(), err)
	}
	return nil
}

// srqEvents receives the events of the driver for an SRQ.
type srqEvents SRQ

func (up *srqEvents) Event(t EventType) {
	srq := (*SRQ)(up)
	srq.pd.ctx.raise(AsyncEvent{Type: t, SRQ: srq, of: &srq.asyncEv})
}

// TMCap holds the sizes of an SRQ with tag matching (struct ibv_tm_cap).
type TMCap struct {
	MaxNumTags uint32
	MaxOps     uint32
}

// check checks the fields that the type needs, and clears those that it does not have.
func (a *SRQInitAttr) check(vctx *Context) error {
	switch a.Type {
	case SRQTypeBasic:
		a.XRCD, a.CQ, a.TMCap = nil, nil, TMCap{}
		return nil
	case SRQTypeXRC:
		a.TMCap = TMCap{}
		if a.XRCD == nil {
			return errors.New("type XRC: missing XRCD")
		}
	case SRQTypeTM:
		a.XRCD = nil
		if err := a.TMCap.check(&vctx.attr.TMCaps); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown SRQ type %v; must be BASIC, XRC or TM", a.Type)
	}
	switch {
	case a.CQ == nil:
		return fmt.Errorf("type %v: missing CQ", a.Type)
	case a.CQ.ctx != vctx || a.XRCD != nil && a.XRCD.ctx != vctx:
		return errors.New("the XRC domain or the CQ belongs to another context")
	}
	return nil
}

// check checks the sizes for a device.
func (c *TMCap) check(caps *TMCaps) error {
	if caps.MaxNumTags == 0 {
		return fmt.Errorf("the device has no SRQs of type TM: %w", EOPNOTSUPP)
	}
	for _, c := range []struct {
		name  string
		value uint32
		max   uint32
	}{{"MaxNumTags", c.MaxNumTags, caps.MaxNumTags}, {"MaxOps", c.MaxOps, caps.MaxOps}} {
		if c.value < 1 || c.value > c.max {
			return fmt.Errorf("type TM: %s %d: must be 1 to %d", c.name, c.value, c.max)
		}
	}
	return nil
}

// Num returns the number of an SRQ of type XRC, 24 bits, which peers put in RemoteSRQN (ibv_get_srq_num). EINVAL for
// other types.
func (srq *SRQ) Num() (uint32, error) {
	switch {
	case srq.lifetime.closed.Load():
		return 0, errClosed("get_srq_num", srq.obj())
	case srq.xrcd == nil:
		return 0, newError("get_srq_num", srq.obj(), EINVAL, "only an SRQ of type XRC has a number")
	}
	return srq.num, nil
}

// XRCD returns the XRC domain of an SRQ of type XRC; nil for others.
func (srq *SRQ) XRCD() *XRCD { return srq.xrcd }

// CQ returns the completion queue of an SRQ of type XRC or TM; nil for others.
func (srq *SRQ) CQ() *CQ { return srq.cq }
