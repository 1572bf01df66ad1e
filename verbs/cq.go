package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// CQ is a completion queue (struct ibv_cq, struct ibv_cq_ex, ibv_cq_ex_to_cq). It is safe for concurrent use.
//
// Poll takes completions without waiting. Wait waits for them. All iterates over them. StartPoll, NextPoll and
// EndPoll take a batch; batches of several goroutines do not interleave.
type CQ struct {
	ctx      *Context
	drv      DriverCQ
	opts     CQOptions
	unlocked bool // batches do not lock: the program guarantees that one goroutine at a time has a batch
	lifetime lifetime
	mu       sync.Mutex // serialises Resize, Modify and Close
	cqe      atomic.Int64
	comp     ackCount // completion events
	asyncEv  ackCount

	notified atomic.Bool               // the program has called ReqNotify
	waiters  atomic.Pointer[cqWaiters] // nil until the first Wait

	batch   sync.Mutex // from StartPoll to EndPoll, unless unlocked
	polling bool       // between StartPoll and EndPoll; guarded by batch
}

// CQOptions holds the optional parameters of CreateCQ (struct ibv_cq_init_attr_ex, enum ibv_cq_init_attr_mask). The
// zero value has no channel.
type CQOptions struct {
	Context    any          // returned by CQ.CQContext
	Channel    *CompChannel // delivers the completion events; nil: Poll and Wait only
	CompVector int          // 0 to Context.NumCompVectors()-1

	// WCFlags is the set of valid fields of the completions. 0 stands for WCStandardFlags.
	WCFlags      CreateCQWCFlags
	Flags        CreateCQFlags
	ParentDomain *PD // with a thread domain: batches do not lock; may be nil
}

// CreateCQ creates a completion queue with room for at least cqe completions, 1 to MaxCQE (ibv_create_cq,
// ibv_create_cq_ex). CQ.Cap returns the actual room. opts may be nil; it is copied.
//
// Errors: EINVAL for a bad cqe, channel, vector or domain, or unknown flags. EOPNOTSUPP for fields and flags that the
// device lacks. ENOMEM without resources.
func (vctx *Context) CreateCQ(cqe int, opts *CQOptions) (*CQ, error) {
	const op = "create_cq"
	cq := &CQ{ctx: vctx}
	if opts != nil {
		cq.opts = *opts
	}
	if err := vctx.use(op, kindCQ); err != nil {
		return nil, err
	}
	if err := cq.check(op, cqe); err != nil {
		vctx.lifetime.drop(kindCQ)
		return nil, err
	}
	if cq.opts.WCFlags == 0 {
		cq.opts.WCFlags = WCStandardFlags
	}
	ch, pd := cq.opts.Channel, cq.opts.ParentDomain
	if ch != nil && !ch.lifetime.use(kindCQ) {
		vctx.lifetime.drop(kindCQ)
		return nil, errClosed(op, ch.obj())
	}
	if pd != nil && !pd.lifetime.use(kindCQ) {
		if ch != nil {
			ch.lifetime.drop(kindCQ)
		}
		vctx.lifetime.drop(kindCQ)
		return nil, errClosed(op, pd.obj())
	}
	cq.unlocked = cq.opts.Flags&CreateCQSingleThreaded != 0 || pd != nil && pd.td != nil
	drv, err := vctx.drv.CreateCQ(cqe, &cq.opts, (*cqEvents)(cq))
	if err != nil {
		cq.release()
		return nil, driverError(op, vctx.obj(), err)
	}
	cq.drv = drv
	cq.cqe.Store(int64(drv.Cap()))
	return cq, nil
}

func (cq *CQ) check(op string, cqe int) error {
	if err := cq.checkSize(op, cqe); err != nil {
		return err
	}
	if n := cq.ctx.NumCompVectors(); cq.opts.CompVector < 0 || cq.opts.CompVector >= n {
		return newError(op, cq.ctx.obj(), EINVAL, "completion vector %d: must be 0 to %d", cq.opts.CompVector, n-1)
	}
	if ch := cq.opts.Channel; ch != nil && ch.ctx != cq.ctx {
		return newError(op, cq.ctx.obj(), EINVAL, "the completion channel belongs to another context")
	}
	const flags = CreateCQSingleThreaded | CreateCQIgnoreOverrun
	switch o, pd := &cq.opts, cq.opts.ParentDomain; {
	case o.WCFlags&^CreateCQSupWCFlags != 0:
		return newError(op, cq.ctx.obj(), EINVAL, "unknown fields %v; must be of %v", o.WCFlags&^CreateCQSupWCFlags,
			CreateCQSupWCFlags)
	case o.Flags&^flags != 0:
		return newError(op, cq.ctx.obj(), EINVAL, "unknown flags %v; must be of %v", o.Flags&^flags, flags)
	case pd != nil && pd.ctx != cq.ctx:
		return newError(op, cq.ctx.obj(), EINVAL, "the parent domain belongs to another context")
	case pd != nil && (pd.base == pd || pd.from != nil):
		return newError(op, cq.ctx.obj(), EINVAL, "the PD is not a parent domain")
	}
	return nil
}

func (cq *CQ) checkSize(op string, cqe int) error {
	if cqe < 1 || cqe > cq.ctx.attr.MaxCQE {
		return newError(op, cq.ctx.obj(), EINVAL, "cqe %d: must be 1 to %d", cqe, cq.ctx.attr.MaxCQE)
	}
	return nil
}

// release ends the uses that CreateCQ counted.
func (cq *CQ) release() {
	if cq.opts.Channel != nil {
		cq.opts.Channel.lifetime.drop(kindCQ)
	}
	if cq.opts.ParentDomain != nil {
		cq.opts.ParentDomain.lifetime.drop(kindCQ)
	}
	cq.ctx.lifetime.drop(kindCQ)
}

// Context returns the context of the CQ.
func (cq *CQ) Context() *Context { return cq.ctx }

// CQContext returns CQOptions.Context (cq_context).
func (cq *CQ) CQContext() any { return cq.opts.Context }

// Channel returns the CQ's completion channel; nil without one.
func (cq *CQ) Channel() *CompChannel { return cq.opts.Channel }

// Cap returns the number of completions that the CQ has room for (cqe of struct ibv_cq).
func (cq *CQ) Cap() int { return int(cq.cqe.Load()) }

func (cq *CQ) obj() string { return fmt.Sprintf("CQ of %d entries of %s", cq.Cap(), cq.ctx.obj()) }

// Poll removes the oldest completions from the CQ, copies them to wcs, at most len(wcs), and returns their number
// (ibv_poll_cq). 0 is not an error. The fields of WCStandardFlags and of CQOptions.WCFlags are valid. It allocates
// nothing and is safe for concurrent use.
//
// Errors: ErrClosed if the CQ is closed. EIO if the CQ has overflowed (EventCQErr) and its older completions are taken.
func (cq *CQ) Poll(wcs []WC) (int, error) {
	if cq.lifetime.closed.Load() {
		return 0, errClosed("poll_cq", cq.obj())
	}
	if len(wcs) == 0 {
		return 0, nil
	}
	n, err := cq.drv.Poll(noescape(wcs))
	if err != nil {
		return n, driverError("poll_cq", cq.obj(), err)
	}
	if cq.opts.WCFlags&^WCStandardFlags != 0 {
		for i := range wcs[:n] {
			wcs[i].keepExtended(cq.opts.WCFlags)
		}
	}
	return n, nil
}

// ReqNotify requests one event on the CQ's channel, for the next completion that is added (ibv_req_notify_cq). With
// solicitedOnly only a failure or the receive of a message sent with SendSolicited raises it. A completion that is in
// the CQ already raises none: poll after this call. ErrClosed if the CQ is closed, EIO if it has overflowed.
func (cq *CQ) ReqNotify(solicitedOnly bool) error {
	if cq.lifetime.closed.Load() {
		return errClosed("req_notify_cq", cq.obj())
	}
	if !cq.notified.Load() {
		cq.notified.Store(true)
	}
	if err := cq.drv.ReqNotify(solicitedOnly); err != nil {
		return driverError("req_notify_cq", cq.obj(), err)
	}
	return nil
}

// AckEvents acknowledges n completion events (ibv_ack_cq_events). Close waits until all delivered events are
// acknowledged. A larger n acknowledges all.
func (cq *CQ) AckEvents(n int) {
	if n > 0 {
		cq.comp.ack(uint64(n))
	}
}

// Resize changes the room to at least cqe completions, 1 to MaxCQE (ibv_resize_cq). Completions in the CQ and a
// requested notification stay. A failure changes nothing. EINVAL if cqe is out of range or less than the number of
// completions in the CQ, ENOSYS if the device cannot resize.
func (cq *CQ) Resize(cqe int) error {
	const op = "resize_cq"
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.lifetime.closed.Load() {
		return errClosed(op, cq.obj())
	}
	if err := cq.ctx.checkRemoved(op, cq); err != nil {
		return err
	}
	if err := cq.checkSize(op, cqe); err != nil {
		return err
	}
	if err := cq.drv.Resize(cqe); err != nil {
		return driverError(op, cq.obj(), err)
	}
	cq.cqe.Store(int64(cq.drv.Cap()))
	return nil
}

// Close destroys the CQ (ibv_destroy_cq). Completions in it are lost. Pending calls of Wait return ErrClosed. EBUSY
// while QPs, SRQs or WQs use it. It blocks, without a time-out, until all delivered completion events and asynchronous
// events of the CQ are acknowledged.
func (cq *CQ) Close() error {
	const op = "destroy_cq"
	if err := cq.destroy(op); err != nil {
		return err
	}
	cq.endWaiters()
	if ch := cq.opts.Channel; ch != nil {
		ch.q.purge(&cq.comp)
	}
	cq.ctx.async.purge(&cq.asyncEv)
	cq.release()
	cq.comp.wait()
	cq.asyncEv.wait()
	return cq.ctx.ended(op, cq)
}

func (cq *CQ) destroy(op string) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if err := cq.lifetime.close(op, cq); err != nil {
		return err
	}
	if err := destroyed(cq.drv.Destroy()); err != nil {
		cq.lifetime.reopen()
		return driverError(op, cq.obj(), err)
	}
	return nil
}

// counter implements event: a *CQ is an event of its channel.
func (cq *CQ) counter() *ackCount { return &cq.comp }

// cqEvents receives the events of the driver for a CQ.
type cqEvents CQ

func (up *cqEvents) Completion() {
	cq := (*CQ)(up)
	w := cq.waiters.Load()
	if w != nil {
		w.wake()
	}
	switch ch := cq.opts.Channel; {
	case ch == nil || w != nil && !cq.notified.Load(): // only Wait can have asked
	case w == nil || w.count.Load() == 0:
		ch.q.push(cq)
	default: // perhaps Wait asked for this event, and nobody takes it: one of them is enough
		ch.q.pushOnce(cq)
	}
}

func (up *cqEvents) Error() {
	cq := (*CQ)(up)
	defer cq.wakeWaiters()
	cq.ctx.raise(AsyncEvent{Type: EventCQErr, CQ: cq, of: &cq.asyncEv})
}

// ModifyCQAttr holds the attributes of CQ.Modify (struct ibv_modify_cq_attr).
type ModifyCQAttr struct {
	AttrMask CQAttrMask // CQAttrModerate or 0
	Moderate ModerateCQ
}

// ModerateCQ delays completion events (struct ibv_moderate_cq). After ReqNotify the CQ raises its event when Count of
// the requested completions have come, or Period after the first of them. With a Count of 0 only Period limits the
// delay; with a Period of 0 only Count does. Both 0, or a Count of 1, is no moderation. DeviceAttr.CQModCaps holds
// the maxima.
type ModerateCQ struct {
	Count  uint16
	Period uint16 // microseconds
}

// Modify changes attributes of the CQ (ibv_modify_cq). A delayed event is raised at once. A failure changes nothing.
// EINVAL for an unknown attribute or values above the device's maxima, ENOSYS if the device has no moderation.
func (cq *CQ) Modify(attr *ModifyCQAttr) error {
	const op = "modify_cq"
	cq.mu.Lock()
	defer cq.mu.Unlock()
	switch {
	case cq.lifetime.closed.Load():
		return errClosed(op, cq.obj())
	case cq.ctx.isRemoved():
		return errRemoved(op, cq)
	case attr == nil:
		return newError(op, cq.obj(), EINVAL, "the attributes are nil")
	case attr.AttrMask&^CQAttrModerate != 0:
		return newError(op, cq.obj(), EINVAL, "unknown attributes %v; must be of %v", attr.AttrMask&^CQAttrModerate,
			CQAttrModerate)
	}
	if cq.ctx.attr.CQModCaps == (CQModerationCaps{}) {
		return newError(op, cq.obj(), ENOSYS, "the device does not moderate completion events")
	}
	if attr.AttrMask == 0 {
		return nil
	}
	if m, caps := attr.Moderate, cq.ctx.attr.CQModCaps; m.Count > caps.MaxCQCount || m.Period > caps.MaxCQPeriod {
		return newError(op, cq.obj(), EINVAL, "count %d and period %d us: must be 0 to %d and 0 to %d us",
			m.Count, m.Period, caps.MaxCQCount, caps.MaxCQPeriod)
	}
	return driverError(op, cq.obj(), cq.drv.Moderate(attr.Moderate))
}
