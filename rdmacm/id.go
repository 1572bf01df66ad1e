package rdmacm

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// ID is one end of a connection, a listener, or a datagram service: what a socket is to TCP (struct rdma_cm_id).
//
// On an event channel an ID is asynchronous: calls begin something, and an event reports the result.
// Without a channel it is synchronous: calls wait, and ID.Event has the last event. An ID is used for one connection.
//
// All methods are safe for concurrent use.
type ID struct {
	Context any // the program's; the package does not look at it

	host   *Host
	num    uint32 // number of the ID in the tools' reports
	ps     PortSpace
	qpType verbs.QPType // set before the ID is in use
	acks   acks

	mu sync.Mutex // its place in the order of locks: manager.go
	// +checklocks:mu
	state state // librdmacm's; connection.conn has more of a connection

	// Channel, and the last event of a synchronous ID (sync.go).
	// +checklocks:mu
	reporting
	// Device, addresses and port (addr.go).
	// +checklocks:mu
	binding
	// The resolved path (route.go).
	// +checklocks:mu
	route
	// What SetOption and the methods called Set have set (option.go).
	// +checklocks:mu
	options
	// Listeners on the devices (listen.go).
	// +checklocks:mu
	listening
	// The connection and its state (connection.go).
	// +checklocks:mu
	connection
	// QP, SRQ, CQs, and multicast groups (qp.go, mcast.go).
	// +checklocks:mu
	objects
}

// CreateID makes an ID on the default host (rdma_create_id): asynchronous on a channel, synchronous if ch is nil.
// EINVAL for an unknown port space, ErrClosed for a closed channel.
func CreateID(ch *EventChannel, ps PortSpace, userContext any) (*ID, error) {
	if ch != nil {
		return ch.host.CreateID(ch, ps, userContext)
	}
	return defaultHost.CreateID(nil, ps, userContext)
}

// CreateID makes an ID on this host (rdma_create_id): asynchronous on ch, a channel of this host, or synchronous if
// ch is nil. EINVAL for an unknown port space, or a channel of another host. ErrClosed for a closed channel.
func (h *Host) CreateID(ch *EventChannel, ps PortSpace, userContext any) (*ID, error) {
	const op = "create_id"
	if !ps.valid() {
		return nil, &Error{Op: op, Errno: syscall.EINVAL, Detail: ps.String() + ": must be TCP, UDP, IB or IPOIB"}
	}
	if ch != nil && ch.host != h {
		return nil, &Error{Op: op, Errno: syscall.EINVAL,
			Detail: "the channel is another host's: must be one of the ID's host"}
	}
	id := h.newID(ch, ps, userContext)
	if id == nil {
		return nil, ch.errClosed(op)
	}
	return id, nil
}

// lastNum numbers the IDs of the process.
var lastNum atomic.Uint32

// newID makes an ID, nil if the channel is closed.
func (h *Host) newID(ch *EventChannel, ps PortSpace, userContext any) *ID {
	sync := ch == nil
	if sync {
		ch = newChannel(h)
	}
	id := &ID{
		host: h, num: lastNum.Add(1), ps: ps, Context: userContext, qpType: ps.defaultQPType(),
		reporting: reporting{ch: ch, sync: sync},
	}
	if !ch.join(id) {
		return nil
	}
	return id
}

// Close destroys the ID in any state (rdma_destroy_id; for IDs of CreateEP, Dial and a Listener, rdma_destroy_ep). It
// withdraws a request that the peer has not answered, refuses one that the program has not answered, ends a connection
// and leaves multicast groups. The ID has no more events. Close blocks until the program has acknowledged the events
// that it has retrieved; that of ID.Event counts as acknowledged. EBUSY while the ID has a QP or SRQ of CreateQP or
// CreateSRQ; those of an endpoint are destroyed too, unless something else uses them (EBUSY). After EBUSY the ID is
// open, and Close may be called again; an endpoint may have left its groups and lost its QP. ErrClosed if the ID is
// closed.
func (id *ID) Close() error {
	const op = "destroy_id"
	id.mu.Lock()
	if id.state == stDestroying {
		defer id.mu.Unlock()
		return id.errClosed(op)
	}
	if err := id.bare(op); err != nil {
		id.mu.Unlock()
		return err
	}
	ended := id.end()
	id.mu.Unlock()
	id.finish(ended)
	id.acks.wait()
	return nil
}

// bare checks that the ID has neither QP nor SRQ; it destroys those of an endpoint.
//
// +checklocks:id.mu
func (id *ID) bare(op string) error {
	if id.ep == nil {
		if id.qp != nil || id.srq != nil {
			return id.fail(op, syscall.EBUSY, "the ID has a QP or SRQ: call DestroyQP and DestroySRQ first")
		}
		return nil
	}
	id.leaveGroups()
	if err := id.destroyQP(); err != nil {
		return err
	}
	return id.destroySRQ()
}

// destroyAll is Close without waiting for acknowledgements, with QP and SRQ.
func (id *ID) destroyAll() { id.destroyOn(nil) }

// destroyOn is destroyAll if the ID is on ch, or ch is nil: the ID may have moved to another channel meanwhile.
func (id *ID) destroyOn(ch *EventChannel) {
	id.mu.Lock()
	if id.state == stDestroying || ch != nil && id.ch != ch {
		id.mu.Unlock()
		return
	}
	ended := id.end()
	id.mu.Unlock()
	id.finish(ended)
}

// leftovers is the work that end leaves to finish.
type leftovers struct {
	ch    *EventChannel
	sync  bool   // ch is the ID's own
	event *Event // to be acknowledged

	listeners []deviceListener // whose claims are to be given back
}

// end destroys everything of the ID and makes it DESTROYING: it gets no more events.
//
// +checklocks:id.mu
func (id *ID) end() leftovers {
	id.state = stDestroying
	id.endWaits()
	id.endReach()
	id.endWatch()
	id.leaveGroups()
	_ = id.destroyQP()
	_ = id.destroySRQ()
	listeners := id.unlisten()
	id.endStream()
	id.dropKernelID()
	if id.cmid != nil {
		id.dev.cm.destroy(id.cmid)
	}
	id.unbind()
	l := leftovers{id.ch, id.sync, id.event, listeners}
	id.event = nil
	return l
}

// finish does the rest of Close. The caller does not hold id.mu: finish takes other IDs' locks.
func (id *ID) finish(l leftovers) {
	l.ch.leave(id)
	for _, ev := range l.ch.purge(func(ev *Event) bool { return ev.owner == id }) {
		if ev.Type == EventConnectRequest {
			ev.ID.destroyAll()
		}
	}
	if l.event != nil {
		_ = l.event.Ack()
	}
	if l.sync {
		_ = l.ch.Close()
	}
	giveBack(l.listeners)
}

// bindDevice binds the ID to a device. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) bindDevice(d *device, sgid gidPlace) {
	id.dev, id.sgid = d, sgid
	d.users[id] = struct{}{}
}

// unbind releases port and device.
//
// +checklocks:id.mu
func (id *ID) unbind() {
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ports.release(id) // if it has one
	delete(h.wild, id)
	if id.dev != nil {
		delete(id.dev.users, id)
		id.dev.retire()
	}
}
