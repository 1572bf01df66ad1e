package rdmacm

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// ID is one end of a connection, a listener, or a datagram service: what a socket is to TCP (struct rdma_cm_id).
//
// On an event channel an ID is asynchronous: calls begin something, and an event tells what has become of it.
// Without one it is synchronous: calls wait, and ID.Event has the last event. An ID is used for one connection.
//
// All methods are safe for concurrent use.
type ID struct {
	Context any // the program's, never looked at

	host   *Host
	num    uint32 // by which the tools show it
	ps     PortSpace
	qpType verbs.QPType
	acks   acks

	mu    sync.Mutex
	state state
	ch    *EventChannel
	sync  bool
	event *Event // SYNC: the last one
	ep    *endpoint

	dev           *device
	sgid          int            // index of the local address in the GID table
	bound         portKey        // guarded by Host.mu
	unseen        bool           // the port was chosen here, and the program has not asked which one
	local, remote netip.AddrPort // local changes while bound is zero only, or from the unspecified address
	zone          string         // of their link-local addresses
	path          PathRec
	haveRoute     bool
	afIB          bool // addressed by GIDs and service IDs: requests have no IP header

	tos           uint8
	reuse, afonly bool
	ackTimeout    uint8
	ackTimeoutSet bool
	ece, peerECE  ECE

	cmid      *cm.ID
	listeners []deviceListener
	backlog   *cm.Backlog

	attrs              cm.Attrs // of the QP, when the peer's is known
	cmPath             cm.Path
	respRes, initDepth uint8                            // READs and atomics at a time, in and out
	strayed            bool                             // ADDR_CHANGE has told that the local address is gone
	ended              bool                             // DISCONNECTED has been told
	over               bool                             // nothing more is to come of the connection, or of the wish for one
	left               bool                             // the peer has asked for the end
	waiting            map[*context.CancelFunc]struct{} // receives of a synchronous ID, for the peer too
	broken             bool                             // CONNECT_ERROR has been told: nothing more about the connection

	qp                       *verbs.QP
	srq                      *verbs.SRQ
	sendCQ, recvCQ           *verbs.CQ
	sendChannel, recvChannel *verbs.CompChannel
	groups                   map[netip.Addr]*group
}

// CreateID makes an ID on the default host (rdma_create_id): asynchronous on a channel, synchronous if ch is nil. EINVAL if
// there is no such port space.
func CreateID(ch *EventChannel, ps PortSpace, context any) (*ID, error) {
	if ch != nil {
		return ch.host.CreateID(ch, ps, context)
	}
	return defaultHost.CreateID(nil, ps, context)
}

// CreateID makes an ID on this host (rdma_create_id), whose channel ch is, or nil for a synchronous ID. EINVAL if there is no such
// port space.
func (h *Host) CreateID(ch *EventChannel, ps PortSpace, context any) (*ID, error) {
	const op = "create_id"
	if !ps.valid() {
		return nil, &Error{Op: op, Errno: syscall.EINVAL, Detail: "there is no " + ps.String(), Hint: "there are TCP, UDP, IB and IPOIB"}
	}
	if ch != nil && ch.host != h {
		return nil, &Error{Op: op, Errno: syscall.EINVAL, Detail: "the channel belongs to another host"}
	}
	id := h.newID(ch, ps, context)
	if id == nil {
		return nil, ch.errClosed(op)
	}
	return id, nil
}

// lastNum numbers the IDs of the process.
var lastNum atomic.Uint32

// newID makes an ID, nil if the channel is closed.
func (h *Host) newID(ch *EventChannel, ps PortSpace, context any) *ID {
	id := &ID{host: h, num: lastNum.Add(1), ps: ps, Context: context, qpType: ps.defaultQPType(), ch: ch, sync: ch == nil}
	if id.sync {
		id.ch = newChannel(h)
	}
	if !id.ch.join(id) {
		return nil
	}
	return id
}

// Close destroys the ID in any state (rdma_destroy_id; for IDs of CreateEP, Dial and a Listener, rdma_destroy_ep). What
// it is doing ends: a request under way is taken back, one that was not answered is refused, a connection is
// closed, multicast groups are left. There are no more events for it. It blocks until the events that the program got are
// acknowledged. EBUSY while a QP or SRQ that CreateQP or CreateSRQ made is there; those of an endpoint go along with it, unless
// something else uses them (EBUSY). The ID is still there then.
func (id *ID) Close() error {
	const op = "destroy_id"
	id.mu.Lock()
	if err := id.in(op, stIdle, stAddrQuery, stAddrResolved, stRouteQuery, stRouteResolved, stConnect, stDisconnect, stAddrBound, stListen, stRemoved); err != nil {
		id.mu.Unlock()
		return err
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

// bare sees to it that the ID has neither QP nor SRQ. id.mu is held.
func (id *ID) bare(op string) error {
	if id.ep == nil {
		if id.qp != nil || id.srq != nil {
			return id.fail(op, syscall.EBUSY, "the ID has a QP or SRQ; DestroyQP and DestroySRQ come first")
		}
		return nil
	}
	id.leaveGroups()
	if err := id.destroyQP(); err != nil {
		return err
	}
	return id.destroySRQ()
}

// destroyAll is Close for whoever has no time to wait: with QP and SRQ, and events may be open.
func (id *ID) destroyAll() { id.destroyOn(nil) }

// destroyOn is destroyAll if the ID is on the channel, or ch is nil: it may have moved to another one meanwhile.
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

// leftovers is what end leaves to finish.
type leftovers struct {
	event *Event
	ch    *EventChannel
}

// end makes the ID DESTROYING: nothing happens to it any more. id.mu is held.
func (id *ID) end() leftovers {
	id.state = stDestroying
	id.leaveGroups()
	_ = id.destroyQP()
	_ = id.destroySRQ()
	id.unlisten()
	if id.cmid != nil {
		_ = id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
			m.Destroy(now, id.cmid, out)
			return nil
		})
	}
	id.unbind()
	l := leftovers{id.event, id.ch}
	id.event = nil
	return l
}

// finish does the rest of Close, without id.mu: other IDs' locks are taken.
func (id *ID) finish(l leftovers) {
	l.ch.leave(id)
	for _, ev := range l.ch.purge(func(ev *Event) bool { return ev.owner == id }) {
		if ev.Type == EventConnectRequest {
			ev.ID.destroyAll()
		}
	}
	if id.sync {
		if l.event != nil {
			_ = l.event.Ack()
		}
		_ = l.ch.Close()
	}
}

// bindDevice makes the ID one of a device. id.mu and Host.mu are held.
func (id *ID) bindDevice(d *device, sgid int) {
	id.dev, id.sgid = d, sgid
	d.users[id] = struct{}{}
}

// unbind gives port and device back. id.mu is held.
func (id *ID) unbind() {
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if id.bound != (portKey{}) {
		h.ports.release(id)
	}
	delete(h.wild, id)
	if id.dev != nil {
		delete(id.dev.users, id)
		id.dev.retire()
	}
}

// Migrate moves the ID with the events that nobody has got to another channel, or makes it synchronous if ch is nil
// (rdma_migrate_id). The new IDs of requests that nobody has got move along. It blocks while events of the ID are not acknowledged. EINVAL if the ID is synchronous already.
func (id *ID) Migrate(ch *EventChannel) error {
	const op = "migrate_id"
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
	case ch == nil && id.sync:
		return id.fail(op, syscall.EINVAL, "the ID is synchronous already")
	case ch != nil && ch.host != id.host:
		return id.fail(op, syscall.EINVAL, "the channel belongs to another host")
	}
	if id.event != nil {
		_ = id.event.Ack()
		id.event = nil
	}
	id.mu.Unlock()
	id.acks.wait()
	id.mu.Lock()
	if id.state == stDestroying {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
	}
	old, private := id.ch, id.sync
	if ch == nil {
		ch = newChannel(id.host)
		id.sync = true
	} else {
		id.sync = false
	}
	if !ch.join(id) {
		id.sync = private
		return ch.errClosed(op)
	}
	old.leave(id)
	id.ch = ch
	for _, ev := range old.purge(func(ev *Event) bool { return ev.owner == id }) {
		if ev.Type == EventConnectRequest {
			ev.ID.follow(id, ev)
		} else {
			ch.push(ev)
		}
	}
	if private {
		_ = old.Close()
	}
	return nil
}

// follow moves an ID, with the request that has made it, to where its listener has gone. l.mu is held.
func (id *ID) follow(l *ID, request *Event) {
	id.mu.Lock()
	defer id.mu.Unlock()
	old, private := id.ch, id.sync
	to := l.ch
	if l.sync {
		to = newChannel(id.host)
	}
	if id.state != stDestroying && to.join(id) {
		id.ch, id.sync = to, l.sync
		old.leave(id)
	}
	l.ch.push(request)
	if id.ch == old {
		return
	}
	for _, ev := range old.purge(func(ev *Event) bool { return ev.owner == id }) {
		to.push(ev)
	}
	if private {
		_ = old.Close()
	}
}
