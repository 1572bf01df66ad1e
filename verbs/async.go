package verbs

import (
	"context"
	"sync/atomic"
)

// AsyncEvent is an asynchronous event of an object, a port or the device (struct ibv_async_event). Type determines
// which of CQ, QP, SRQ, WQ and Port is set. Each event must be acknowledged with Ack; Close of the object blocks
// until then.
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

// GetAsyncEvent waits for the next asynchronous event and returns it (ibv_get_async_event). Events queue from Open
// on, in the order in which they happened. Each event is returned to one caller. Events of a CQ, QP, SRQ or WQ are
// delivered to the context of the object only, other events to every context of the device. It is safe for concurrent
// use.
//
// Errors: ctx.Err() if ctx is done, ErrClosed if the context is closed, EIO if the device was removed and there is no
// event left.
func (vctx *Context) GetAsyncEvent(ctx context.Context) (AsyncEvent, error) {
	return vctx.async.get(ctx, "get_async_event", vctx)
}

// TryGetAsyncEvent is GetAsyncEvent without waiting: EAGAIN if there is no event (ibv_get_async_event with
// O_NONBLOCK).
func (vctx *Context) TryGetAsyncEvent() (AsyncEvent, error) {
	return vctx.async.try("get_async_event", vctx)
}

// AsyncFD returns a file descriptor that is readable while there are events (async_fd of struct ibv_context). It is
// for poll, select and epoll only; the program must neither read nor close it. It is valid until the context is
// closed. EOPNOTSUPP if the operating system has no such descriptors.
func (vctx *Context) AsyncFD() (int, error) { return vctx.async.descriptor("async_fd", vctx) }

// raise queues an event. An event of an object carries the counter of the object.
func (vctx *Context) raise(ev AsyncEvent) {
	if ev.of != nil {
		ev.acked = new(atomic.Bool)
	}
	vctx.async.push(ev)
}

// contextEvents receives the events of the driver for a Context.
type contextEvents Context

func (up *contextEvents) PortEvent(t EventType, port uint8) {
	(*Context)(up).raise(AsyncEvent{Type: t, Port: port})
}

func (up *contextEvents) DeviceEvent(t EventType) {
	vctx := (*Context)(up)
	vctx.raise(AsyncEvent{Type: t})
	if t == EventDeviceFatal {
		vctx.failed.Do(vctx.remove)
	}
}

// EventType is the type of an asynchronous event (enum ibv_event_type).
type EventType uint32

// The event types (IBV_EVENT_*) and the object of each.
const (
	EventCQErr             EventType = 0  // CQ: overrun or protection error
	EventQPFatal           EventType = 1  // QP: it moved to ERR, and no completion may say why
	EventQPReqErr          EventType = 2  // QP: a peer's request violated the protocol
	EventQPAccessErr       EventType = 3  // QP: a peer's request violated the access rights
	EventCommEst           EventType = 4  // QP: the first packet arrived in RTR
	EventSQDrained         EventType = 5  // QP: the send queue is drained
	EventPathMig           EventType = 6  // QP: the alternate path is in use
	EventPathMigErr        EventType = 7  // QP: the peer moved to a path that is not the alternate one
	EventDeviceFatal       EventType = 8  // device
	EventPortActive        EventType = 9  // port
	EventPortErr           EventType = 10 // port
	EventLIDChange         EventType = 11 // port
	EventPKeyChange        EventType = 12 // port
	EventSMChange          EventType = 13 // port
	EventSRQErr            EventType = 14 // SRQ
	EventSRQLimitReached   EventType = 15 // SRQ: fewer receives left than the armed limit
	EventQPLastWQEReached  EventType = 16 // QP: it takes no more receives from its SRQ
	EventClientReregister  EventType = 17 // port
	EventGIDChange         EventType = 18 // port
	EventWQFatal           EventType = 19 // WQ
	EventDeviceSpeedChange EventType = 20 // port
)

var eventTexts = []string{
	"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
	"local access violation work queue error", "communication established", "send queue drained", "path migrated",
	"path migration request error", "local catastrophic error", "port active", "port error", "LID change", "P_Key change",
	"SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration",
	"GID table change", "WQ fatal", "device speed change",
}

// String returns the text of ibv_event_type_str; "unknown" for an unknown value.
func (t EventType) String() string { return textOf(eventTexts, int64(t)) }
