package verbs

import (
	"context"
	"sync/atomic"
)

// AsyncEvent is something that happened to an object, a port or the device (struct ibv_async_event). Type says which
// of CQ, QP, SRQ, WQ and Port is set. Each event that was got must be acknowledged with Ack, or the Close of its
// object blocks for ever.
type AsyncEvent struct {
	Type EventType
	CQ   *CQ
	QP   *QP
	SRQ  *SRQ
	WQ   *WQ
	Port uint8 // from 1

	of    *ackCount
	acked *atomic.Bool
}

func (ev AsyncEvent) counter() *ackCount { return ev.of }

// Ack acknowledges the event (ibv_ack_async_event). A second Ack of it, or of a copy, has no effect.
func (ev AsyncEvent) Ack() {
	if ev.of != nil && ev.acked.CompareAndSwap(false, true) {
		ev.of.ack(1)
	}
}

// GetAsyncEvent waits for the oldest event that nobody has got (ibv_get_async_event). Events queue from Open on and
// come in the order they happened in; each goes to one caller. Events of a CQ, QP, SRQ or WQ come only to the context
// that it belongs to, the others to every context of the device. It returns c's error when c is done, ErrClosed when
// the context is.
func (ctx *Context) GetAsyncEvent(c context.Context) (AsyncEvent, error) {
	return ctx.async.get(c, "get_async_event", ctx)
}

// TryGetAsyncEvent is GetAsyncEvent without waiting: EAGAIN if there is no event (ibv_get_async_event with
// O_NONBLOCK).
func (ctx *Context) TryGetAsyncEvent() (AsyncEvent, error) {
	return ctx.async.try("get_async_event", ctx)
}

// AsyncFD is a file descriptor that is readable while there are events (async_fd of struct ibv_context). It is for
// poll, select and epoll only: neither read nor close it. EOPNOTSUPP where the system has no such thing. It is valid
// until the context is closed.
func (ctx *Context) AsyncFD() (int, error) { return ctx.async.descriptor("async_fd", ctx) }

// raise queues an event. An affiliated one carries the counter of its object.
func (ctx *Context) raise(ev AsyncEvent) {
	if ev.of != nil {
		ev.acked = new(atomic.Bool)
	}
	ctx.async.push(ev)
}

// contextUpcalls is how the driver sees a Context.
type contextUpcalls Context

func (up *contextUpcalls) PortEvent(t EventType, port uint8) {
	(*Context)(up).raise(AsyncEvent{Type: t, Port: port})
}

func (up *contextUpcalls) DeviceEvent(t EventType) { (*Context)(up).raise(AsyncEvent{Type: t}) }
