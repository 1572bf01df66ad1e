package verbs

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// CQ is a completion queue (struct ibv_cq). It is safe for concurrent use.
type CQ struct {
	ctx     *Context
	drv     CQDriver
	opts    CQOptions
	domain  *PD // the parent domain that a CQEx was made with; or nil
	life    life
	mu      sync.Mutex // serialises Resize, Modify and Close
	cqe     atomic.Int64
	comp    ackCount // completion events
	asyncEv ackCount
}

// CQOptions are the further parameters of CreateCQ; the zero value has no channel.
type CQOptions struct {
	Context    any          // anything; CQ.CQContext returns it
	Channel    *CompChannel // for completion events; nil: poll only
	CompVector int          // 0..Context.NumCompVectors()-1
}

// CreateCQ makes a completion queue with room for at least cqe completions, 1..MaxCQE (ibv_create_cq). CQ.Cap tells
// how many it has. opts may be nil. EINVAL for a bad cqe, channel or vector, ENOMEM without resources.
func (ctx *Context) CreateCQ(cqe int, opts *CQOptions) (*CQ, error) {
	var vector int
	if opts != nil {
		vector = opts.CompVector
	}
	return ctx.createCQ("create_cq", cqe, opts, func(up CQUpcalls) (CQDriver, error) { return ctx.drv.CreateCQ(cqe, vector, up) })
}

func (ctx *Context) createCQ(op string, cqe int, opts *CQOptions, create func(CQUpcalls) (CQDriver, error)) (*CQ, error) {
	cq := &CQ{ctx: ctx}
	if opts != nil {
		cq.opts = *opts
	}
	if !ctx.life.use(kindCQ) {
		return nil, errClosed(op, ctx.obj())
	}
	ch := cq.opts.Channel
	if err := cq.check(op, cqe); err != nil {
		ctx.life.drop(kindCQ)
		return nil, err
	}
	if ch != nil && !ch.life.use(kindCQ) {
		ctx.life.drop(kindCQ)
		return nil, errClosed(op, ch.obj())
	}
	drv, err := create((*cqUpcalls)(cq))
	if err != nil {
		cq.release()
		return nil, driverError(op, ctx.obj(), err)
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
		return newError(op, cq.ctx.obj(), EINVAL, "completion vector %d does not exist; 0 to %d do", cq.opts.CompVector, n-1)
	}
	if ch := cq.opts.Channel; ch != nil && ch.ctx != cq.ctx {
		return newError(op, cq.ctx.obj(), EINVAL, "the completion channel belongs to another context")
	}
	return nil
}

func (cq *CQ) checkSize(op string, cqe int) error {
	if cqe < 1 || cqe > cq.ctx.attr.MaxCQE {
		return newError(op, cq.ctx.obj(), EINVAL, "a CQ of %d entries is not possible; 1 to %d are", cqe, cq.ctx.attr.MaxCQE)
	}
	return nil
}

// release gives back what CreateCQ uses.
func (cq *CQ) release() {
	if cq.opts.Channel != nil {
		cq.opts.Channel.life.drop(kindCQ)
	}
	if cq.domain != nil {
		cq.domain.life.drop(kindCQ)
	}
	cq.ctx.life.drop(kindCQ)
}

// Context is the context that the CQ belongs to.
func (cq *CQ) Context() *Context { return cq.ctx }

// CQContext is CQOptions.Context (cq_context).
func (cq *CQ) CQContext() any { return cq.opts.Context }

// Channel is the CQ's completion channel; nil without one.
func (cq *CQ) Channel() *CompChannel { return cq.opts.Channel }

// Cap is how many completions the CQ has room for (cqe of struct ibv_cq).
func (cq *CQ) Cap() int { return int(cq.cqe.Load()) }

// Driver gives providers the driver object of the CQ.
func (cq *CQ) Driver() CQDriver { return cq.drv }

func (cq *CQ) obj() string { return fmt.Sprintf("CQ of %d entries of %s", cq.Cap(), cq.ctx.obj()) }

// Poll takes the oldest completions, len(wcs) at most, and returns how many (ibv_poll_cq). None is not an error. The
// completions are removed from the CQ. It allocates nothing.
func (cq *CQ) Poll(wcs []WC) (int, error) {
	if cq.life.closed.Load() {
		return 0, errClosed("poll_cq", cq.obj())
	}
	if len(wcs) == 0 {
		return 0, nil
	}
	n, err := cq.drv.Poll(noescape(wcs))
	if err != nil {
		return n, driverError("poll_cq", cq.obj(), err)
	}
	return n, nil
}

// ReqNotify asks for one event on the CQ's channel, for the next completion that is added (ibv_req_notify_cq). With
// solicitedOnly only a failure or the receive of a message sent with SendSolicited counts.
func (cq *CQ) ReqNotify(solicitedOnly bool) error {
	if cq.life.closed.Load() {
		return errClosed("req_notify_cq", cq.obj())
	}
	if err := cq.drv.ReqNotify(solicitedOnly); err != nil {
		return driverError("req_notify_cq", cq.obj(), err)
	}
	return nil
}

// AckEvents acknowledges n completion events that were got from the channel (ibv_ack_cq_events). Close waits for it.
// More than there are count as all.
func (cq *CQ) AckEvents(n int) {
	if n > 0 {
		cq.comp.ack(uint64(n))
	}
}

// Resize changes the room to at least cqe completions, 1..MaxCQE (ibv_resize_cq). Completions in the CQ and a
// requested notification stay. EINVAL if cqe is out of range or less than the CQ holds, ENOSYS if the device cannot.
// A failure changes nothing.
func (cq *CQ) Resize(cqe int) error {
	const op = "resize_cq"
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.life.closed.Load() {
		return errClosed(op, cq.obj())
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

// Close destroys the CQ (ibv_destroy_cq). EBUSY while QPs use it. It blocks until all completion events and
// asynchronous events of the CQ that were got are acknowledged. Completions left in it are lost.
func (cq *CQ) Close() error {
	const op = "destroy_cq"
	if err := cq.destroy(op); err != nil {
		return err
	}
	if ch := cq.opts.Channel; ch != nil {
		ch.q.purge(&cq.comp)
	}
	cq.ctx.async.purge(&cq.asyncEv)
	cq.release()
	cq.comp.wait()
	cq.asyncEv.wait()
	return nil
}

func (cq *CQ) destroy(op string) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if err := cq.life.end(op, cq.obj()); err != nil {
		return err
	}
	if err := destroyed(cq.drv.Destroy()); err != nil {
		cq.life.revive()
		return driverError(op, cq.obj(), err)
	}
	return nil
}

// counter makes a *CQ an event of its channel.
func (cq *CQ) counter() *ackCount { return &cq.comp }

// cqUpcalls is how the driver sees a CQ.
type cqUpcalls CQ

func (up *cqUpcalls) Completion() {
	if cq := (*CQ)(up); cq.opts.Channel != nil {
		cq.opts.Channel.q.push(cq)
	}
}

func (up *cqUpcalls) Error() {
	cq := (*CQ)(up)
	cq.ctx.raise(AsyncEvent{Type: EventCQErr, CQ: cq, of: &cq.asyncEv})
}
