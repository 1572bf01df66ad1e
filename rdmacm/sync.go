package rdmacm

import (
	"context"
	"syscall"
)

// complete waits for the event that tells what has become of a call, if the ID is synchronous. The event stays in ID.Event until
// the next call that waits.
func (id *ID) complete(c context.Context, op string) error {
	id.mu.Lock()
	if !id.sync {
		id.mu.Unlock()
		return nil
	}
	id.dropEvent()
	ch := id.ch
	id.mu.Unlock()
	ev, err := ch.result(c)
	for err == nil && ev.Type.before(op) {
		_ = ev.Ack()
		ev, err = ch.result(c)
	}
	if err != nil {
		return err
	}
	id.mu.Lock()
	if id.state == stDestroying {
		defer id.mu.Unlock()
		_ = ev.Ack()
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
	}
	id.event = ev
	id.mu.Unlock()
	return ev.Err()
}

// before tells whether an event is the success of a step before that call: one that was given up has left it.
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

// result waits for an event that is not aside.
func (ch *EventChannel) result(c context.Context) (*Event, error) {
	for {
		ev, err := ch.GetEvent(c)
		if err != nil || !ev.Type.aside() {
			return ev, err
		}
		_ = ev.Ack()
	}
}

// dropEvent acknowledges the last event of a synchronous ID. id.mu is held.
func (id *ID) dropEvent() {
	if id.event != nil {
		_ = id.event.Ack()
		id.event = nil
	}
}

// Event is the last event of a synchronous ID (event of struct rdma_cm_id), nil if there is none: what the last call that waited has
// brought, also if it failed. It is valid until the next such call, which acknowledges it.
func (id *ID) Event() *Event {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.event
}
