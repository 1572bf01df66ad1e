package verbs

import (
	"sync"
	"sync/atomic"
)

// SRQ is a shared receive queue: receives that several QPs take from (struct ibv_srq). It is safe for concurrent use.
type SRQ struct {
	pd      *PD
	xrcd    *XRCD // this and num: of type XRC
	cq      *CQ   // types XRC and TM
	num     uint32
	tm      TMCap  // this and tmSGE: of type TM
	tmSGE   uint32 // SGEs of a buffer with a tag
	drv     SRQDriver
	context any
	life    life
	mu      sync.Mutex // serialises Modify, Query and Close
	maxSGE  atomic.Uint32
	asyncEv ackCount
}

// CreateSRQ makes a shared receive queue (ibv_create_srq). init.Attr gets the actual sizes, which are not below those
// asked for. MaxWR is 1..MaxSRQWR, MaxSGE 1..MaxSRQSGE, else EINVAL. ENOSYS if the device has no SRQs, ENOMEM without
// resources.
func (pd *PD) CreateSRQ(init *SRQInitAttr) (*SRQ, error) {
	const op = "create_srq"
	if init == nil {
		return nil, newError(op, pd.obj(), EINVAL, "there are no attributes")
	}
	srq := &SRQ{pd: pd, context: init.Context}
	err := srq.create(op, &init.Attr, func(attr *SRQAttr) (err error) {
		srq.drv, err = pd.drv.CreateSRQ(attr, (*srqUpcalls)(srq))
		return err
	})
	if err != nil {
		return nil, err
	}
	return srq, nil
}

// create makes an SRQ of which it is known only what it is made of. attr gets the actual sizes.
func (srq *SRQ) create(op string, attr *SRQAttr, create func(*SRQAttr) error) error {
	if err := use(op, kindSRQ, srq.parents()); err != nil {
		return err
	}
	want := *attr
	want.SRQLimit = 0
	err := srq.pd.ctx.checkSRQ(op, srq.pd.obj(), &want)
	if err == nil {
		err = driverError(op, srq.pd.obj(), create(&want))
	}
	if err != nil {
		drop(kindSRQ, srq.parents())
		return err
	}
	srq.maxSGE.Store(want.MaxSGE)
	*attr = want
	return nil
}

// parents lists all that the SRQ is made of.
func (srq *SRQ) parents() []parent {
	list := []parent{{&srq.pd.life, srq.pd.obj()}}
	if srq.xrcd != nil {
		list = append(list, parent{&srq.xrcd.life, srq.xrcd.obj()})
	}
	if srq.cq != nil {
		list = append(list, parent{&srq.cq.life, "CQ"})
	}
	return list
}

// checkSRQ checks the sizes of an SRQ.
func (ctx *Context) checkSRQ(op, obj string, a *SRQAttr) error {
	switch d := &ctx.attr; {
	case d.MaxSRQ == 0:
		return newError(op, obj, ENOSYS, "the device has no SRQs")
	case a.MaxWR < 1 || int64(a.MaxWR) > int64(d.MaxSRQWR):
		return newError(op, obj, EINVAL, "MaxWR %d is not possible; 1 to %d are", a.MaxWR, d.MaxSRQWR)
	case a.MaxSGE < 1 || int64(a.MaxSGE) > int64(d.MaxSRQSGE):
		return newError(op, obj, EINVAL, "MaxSGE %d is not possible; 1 to %d are", a.MaxSGE, d.MaxSRQSGE)
	}
	return nil
}

// PD is the protection domain that the SRQ is in.
func (srq *SRQ) PD() *PD { return srq.pd }

// Context is the context that the SRQ belongs to.
func (srq *SRQ) Context() *Context { return srq.pd.ctx }

// SRQContext is SRQInitAttr.Context (srq_context).
func (srq *SRQ) SRQContext() any { return srq.context }

// Driver gives providers the driver object of the SRQ.
func (srq *SRQ) Driver() SRQDriver { return srq.drv }

func (srq *SRQ) obj() string { return "SRQ of " + srq.pd.ctx.obj() }

// PostRecv posts receives in order (ibv_post_srq_recv), as QP.PostRecv does.
func (srq *SRQ) PostRecv(wrs ...RecvWR) error {
	const op = "post_srq_recv"
	if srq.life.closed.Load() {
		return &PostError{Err: errClosed(op, srq.obj())}
	}
	return postRecv(op, srq, srq.drv, noescape(wrs), srq.maxSGE.Load())
}

// Modify changes the sizes (SRQAttrMaxWR), arms the limit (SRQAttrLimit), or both (ibv_modify_srq). When fewer
// receives than the limit are left EventSRQLimitReached is raised once and the limit becomes 0; 0 disarms. Resizing
// needs DeviceSRQResize, else ENOSYS. On success attr holds actual values. A failure, EINVAL for bad values, changes
// nothing.
func (srq *SRQ) Modify(attr *SRQAttr, mask SRQAttrMask) error {
	const op = "modify_srq"
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.life.closed.Load() {
		return errClosed(op, srq.obj())
	}
	if attr == nil {
		return newError(op, srq.obj(), EINVAL, "there are no attributes")
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
		if err := srq.pd.ctx.checkSRQ(op, srq.obj(), &next); err != nil {
			return err
		}
		now.MaxWR = next.MaxWR
	}
	if mask&SRQAttrLimit != 0 && next.SRQLimit > now.MaxWR {
		return newError(op, srq.obj(), EINVAL, "limit %d is not possible; 0 to %d are", next.SRQLimit, now.MaxWR)
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

// Query tells the sizes and the limit; limit 0 is not armed (ibv_query_srq).
func (srq *SRQ) Query() (SRQAttr, error) {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.life.closed.Load() {
		return SRQAttr{}, errClosed("query_srq", srq.obj())
	}
	attr, err := srq.drv.Query()
	return attr, driverError("query_srq", srq.obj(), err)
}

// Close destroys the SRQ with the receives in it (ibv_destroy_srq). EBUSY while QPs use it. It blocks until the
// asynchronous events of the SRQ that were got are acknowledged.
func (srq *SRQ) Close() error {
	const op = "destroy_srq"
	if err := srq.destroy(op); err != nil {
		return err
	}
	srq.pd.ctx.async.purge(&srq.asyncEv)
	drop(kindSRQ, srq.parents())
	srq.asyncEv.wait()
	return nil
}

func (srq *SRQ) destroy(op string) error {
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if err := srq.life.end(op, srq.obj()); err != nil {
		return err
	}
	if err := destroyed(srq.drv.Destroy()); err != nil {
		srq.life.revive()
		return driverError(op, srq.obj(), err)
	}
	return nil
}

// srqUpcalls is how the driver sees an SRQ.
type srqUpcalls SRQ

func (up *srqUpcalls) Event(t EventType) {
	srq := (*SRQ)(up)
	srq.pd.ctx.raise(AsyncEvent{Type: t, SRQ: srq, of: &srq.asyncEv})
}
