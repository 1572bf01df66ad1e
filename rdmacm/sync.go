package rdmacm

import (
	"context"
	"errors"
	"syscall"
)

// reporting is where an ID's events go.
type reporting struct {
	ch    *EventChannel
	sync  bool      // ch is the ID's own: calls wait
	event *Event    // of a synchronous ID: the last one
	ep    *endpoint // of CreateEP

	found   *AddrInfo // of ResolveAddrInfo, until QueryAddrInfo
	looking bool      // ResolveAddrInfo runs
}

// complete waits for the event of a call's result, if the ID is synchronous. The event stays in ID.Event until the
// next call that waits.
func (id *ID) complete(ctx context.Context, op string) error {
	id.mu.Lock()
	if !id.sync {
		id.mu.Unlock()
		return nil
	}
	id.dropEvent()
	ch := id.ch
	id.mu.Unlock()
	ev, err := id.result(ctx, op, ch)
	for err == nil && ev != nil && ev.Type.before(op) {
		_ = ev.Ack()
		ev, err = id.result(ctx, op, ch)
	}
	switch {
	case err != nil:
		return id.waitError(op, err)
	case ev == nil: // another call has the event
		return nil
	}
	id.mu.Lock()
	if id.state == stDestroying {
		defer id.mu.Unlock()
		_ = ev.Ack()
		return id.errClosed(op)
	}
	id.dropEvent() // of a call that has waited at the same time
	id.event = ev
	obj := id.obj()
	id.mu.Unlock()
	if !ev.failed() {
		return nil
	}
	return ev.err(op, obj)
}

// forgetErrors drops the errors of resolving that a synchronous ID has not taken: the contexts of the calls had ended.
// The next call would take them for its own result.
//
// +checklocks:id.mu
func (id *ID) forgetErrors() {
	if id.sync {
		id.ch.purge(func(ev *Event) bool {
			return ev.owner == id && (ev.Type == EventAddrError || ev.Type == EventRouteError)
		})
	}
}

// waitError is the error of a call whose wait has ended: it adds what the call waited for if its context is done.
func (id *ID) waitError(op string, err error) error {
	errno := syscall.ETIMEDOUT
	switch {
	case errors.Is(err, context.Canceled):
		errno = syscall.ECANCELED
	case !errors.Is(err, context.DeadlineExceeded):
		return err
	}
	e := &Error{Op: op, Obj: id.lockedObj(), Errno: errno, Err: err}
	switch op {
	case "connect":
		e.Detail = "the peer has not answered yet"
	case "accept":
		e.Detail = "the peer has not acknowledged yet"
	case "disconnect":
		e.Detail = "the peer has not called Disconnect or Close yet"
	case opSendComp, "get_recv_comp":
		e.Detail = "no completion yet"
	}
	return e
}

// before reports whether an event is the success of a step before that call: a call whose context ended has left it
// in the channel.
func (t EventType) before(op string) bool {
	switch t {
	case EventAddrResolved:
		return op != "resolve_addr"
	case EventRouteResolved:
		return op != "resolve_addr" && op != "resolve_route"
	case EventConnectResponse, EventEstablished:
		return op == "disconnect"
	}
	return false
}

// result waits in the channel of a synchronous ID for an event that is the result of a call. Without error and event
// another call has taken the event.
func (id *ID) result(ctx context.Context, op string, ch *EventChannel) (*Event, error) {
	for {
		ev, err := ch.get(ctx, func() (bool, error) { return id.missed(op) })
		switch {
		case err != nil || ev == nil:
			return nil, err
		case !ev.Type.aside():
			ch.wake() // for other calls that wait for it
			return ev, nil
		}
		_ = ev.Ack()
	}
}

// missed reports whether a call must not wait, because another one has taken the event: several calls may wait for the
// end of the connection, or of the device, of which there is one event.
func (id *ID) missed(op string) (bool, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stRemoved && !id.unread(EventDeviceRemoval):
		return true, id.fail(op, syscall.ENODEV, deviceGone)
	case op == "disconnect" && id.conn.over() && !id.unread(EventDisconnected):
		return true, nil
	}
	return false, nil
}

// dropEvent acknowledges the last event of a synchronous ID.
//
// +checklocks:id.mu
func (id *ID) dropEvent() {
	if id.event != nil {
		_ = id.event.Ack()
		id.event = nil
	}
}

// Event is the last event of a synchronous ID (event of struct rdma_cm_id), nil if there is none: the result of the
// last call that waited, also if it failed. It is valid until the next such call, which acknowledges it.
func (id *ID) Event() *Event {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.event
}
