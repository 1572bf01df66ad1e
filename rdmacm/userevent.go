package rdmacm

import (
	"context"
	"syscall"
)

// WriteEvent puts an event of the program's own into the ID's channel (rdma_write_cm_event), behind those that are
// there: EventUser with a status and arg. It may also be EventAddrInfoResolved or EventAddrInfoError, for a program
// that looks up addresses itself. Calls that wait skip EventUser on a synchronous ID. EINVAL for another type, and
// after Close.
func (id *ID) WriteEvent(t EventType, status int, arg uint64) error {
	const op = "write_cm_event"
	id.mu.Lock()
	defer id.mu.Unlock()
	switch t {
	case EventUser, EventAddrInfoResolved, EventAddrInfoError:
	default:
		return id.fail(op, syscall.EINVAL, "%v: must be RDMA_CM_EVENT_USER", t)
	}
	if !id.push(&Event{Type: t, Status: status, Arg: arg}) {
		return id.errClosed(op)
	}
	return nil
}

// ResolveAddrInfo is GetAddrInfo whose result is an event, EventAddrInfoResolved (rdma_resolve_addrinfo); then
// QueryAddrInfo has the result. The look-up runs in the call: an error of GetAddrInfo is returned, and there is no
// event then. EBUSY while a result has not been taken by QueryAddrInfo.
func (id *ID) ResolveAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) error {
	const op = "resolve_addrinfo"
	id.mu.Lock()
	if id.found != nil || id.looking {
		defer id.mu.Unlock()
		return id.fail(op, syscall.EBUSY, "a result is there already: take it with QueryAddrInfo")
	}
	id.looking = true
	id.mu.Unlock()
	res, err := GetAddrInfo(ctx, node, service, hints)
	id.mu.Lock()
	if id.looking = false; err == nil {
		id.found = res
		if !id.push(&Event{Type: EventAddrInfoResolved}) {
			err = id.errClosed(op)
		}
	}
	id.mu.Unlock()
	if err != nil {
		return err
	}
	return id.complete(ctx, op)
}

// QueryAddrInfo takes the result of ResolveAddrInfo (rdma_query_addrinfo). ENOENT without a result.
func (id *ID) QueryAddrInfo() (*AddrInfo, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.found == nil {
		return nil, id.fail("query_addrinfo", syscall.ENOENT, "no result: must come after ResolveAddrInfo")
	}
	res := id.found
	id.found = nil
	return res, nil
}
