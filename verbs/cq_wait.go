package verbs

import (
	"context"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// Wait takes completions as Poll does and waits until there is at least one (ibv_req_notify_cq, ibv_poll_cq and
// ibv_get_cq_event in the right order). Any number of goroutines may wait; each completion goes to one of them. The
// CQ needs no channel. If it has one, Wait neither takes nor acknowledges its events. After the program has called
// ReqNotify, a waiting goroutine may cause an additional event.
//
// A program that polls instead has a shorter latency and uses a whole core.
//
// Errors: ctx.Err() if ctx is done and the CQ is empty. ErrClosed if the CQ is closed. EIO if the device fails
// (EventDeviceFatal). EINVAL for an empty wcs. The error of Poll if the CQ is in error.
func (cq *CQ) Wait(ctx context.Context, wcs []WC) (int, error) {
	const op = "wait_cq"
	if len(wcs) == 0 {
		return 0, newError(op, cq.obj(), EINVAL, "wcs is empty: must have 1 element or more")
	}
	if n, err := cq.Poll(wcs); n > 0 || err != nil {
		return n, err
	}
	w := cq.waiting()
	w.count.Add(1)
	defer w.leave()
	for {
		// What came before this call raises no event, so the CQ is polled after it.
		armErr := cq.drv.ReqNotify(false)
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
		if armErr != nil {
			return 0, driverError(op, cq.obj(), armErr)
		}
		select {
		case <-w.event:
		case <-w.end:
			return 0, errClosed(op, cq.obj())
		case <-cq.ctx.fatal:
			return 0, errRemoved(op, cq)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		if n, err := cq.Poll(wcs); n > 0 || err != nil {
			return n, err
		}
	}
}

// All waits for completions and iterates over them, one by one:
//
//	for wc, err := range cq.All(ctx) {
//		if err != nil {
//			return err // ctx is done, or the CQ is closed
//		}
//		if err := wc.Err(); err != nil { ... }
//	}
//
// An error is one of Wait and the last element. A completion is taken when the loop reaches it: after a break the rest
// stays in the CQ. Several loops share the completions. It has no C twin.
func (cq *CQ) All(ctx context.Context) iter.Seq2[WC, error] {
	return func(yield func(WC, error) bool) {
		var wcs [1]WC
		for {
			if _, err := cq.Wait(ctx, wcs[:]); err != nil {
				yield(WC{}, err)
				return
			}
			if !yield(wcs[0], nil) {
				return
			}
		}
	}
}

// cqWaiters is the state that the goroutines in Wait share. No wake-up is lost, because while a goroutine waits one
// of these holds: the device's notification is requested, or event holds a token, or a waiter is between its Poll
// calls and does not sleep. The device raises one event for each request. It becomes a token, which wakes one waiter.
// A waiter that leaves puts a token back if there are others, so that the next waiter polls and requests again.
type cqWaiters struct {
	count atomic.Int32
	event chan struct{} // holds a token if the CQ should be polled
	end   chan struct{} // closed with the CQ
	close sync.Once
}

func newCQWaiters() *cqWaiters {
	return &cqWaiters{event: make(chan struct{}, 1), end: make(chan struct{})}
}

// finish ends all waits, those that come later too.
func (w *cqWaiters) finish() { w.close.Do(func() { close(w.end) }) }

// waiting returns cq.waiters and creates it for the first waiter.
func (cq *CQ) waiting() *cqWaiters {
	if w := cq.waiters.Load(); w != nil {
		return w
	}
	w := newCQWaiters()
	if !cq.waiters.CompareAndSwap(nil, w) {
		return cq.waiters.Load()
	}
	return w
}

func (w *cqWaiters) leave() {
	if w.count.Add(-1) > 0 {
		w.wake()
	}
}

func (w *cqWaiters) wake() {
	select {
	case w.event <- struct{}{}:
		notify.Goroutine()
	default: // there is a token
	}
}

// wakeWaiters makes one waiter poll.
func (cq *CQ) wakeWaiters() {
	if w := cq.waiters.Load(); w != nil {
		w.wake()
	}
}

// endWaiters ends all calls of Wait. The CQ is closed.
func (cq *CQ) endWaiters() {
	if !cq.waiters.CompareAndSwap(nil, noWaiters) {
		cq.waiters.Load().finish()
	}
}

// noWaiters is for the CQs that are closed without a call of Wait: later calls end at once.
var noWaiters = func() *cqWaiters {
	w := newCQWaiters()
	w.finish()
	return w
}()
