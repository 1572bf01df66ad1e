package rdmacm

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// ConnParam are the parameters of a connection (struct rdma_conn_param): in Connect and Accept this side's
// wishes, in an Event what the peer told, seen from this side.
type ConnParam struct {
	// PrivateData is handed to the peer: at most 56 bytes with Connect and 196 with Accept, for datagrams 180 and 136; 92 and 216 with Connect
	// of an ID that has a SockaddrIB. It is copied.
	// In an event it always has the full length, the rest zero.
	PrivateData []byte

	// ResponderResources is how many READs and atomics of the peer this side takes at a time, InitiatorDepth how many it will have
	// outstanding; 0xFF means as many as the device can. An event has what would suit the peer.
	ResponderResources uint8
	InitiatorDepth     uint8

	FlowControl   bool  // only told to the peer
	RetryCount    uint8 // 0 to 7, larger values count as 7; both sides' QPs use that of Connect
	RNRRetryCount uint8 // of the peer's QP, 0 to 7, larger values count as 7, which is for ever

	// SRQ and QPNum describe the caller's QP, if the ID has none of its own. In an event they are those of the peer.
	SRQ   bool
	QPNum uint32
}

// UDParam is what is known of a datagram service or a multicast group (struct rdma_ud_param).
type UDParam struct {
	PrivateData []byte
	AHAttr      verbs.AHAttr // for an address handle to the peer or group
	QPNum       uint32       // to send to
	QKey        uint32       // to send with
	Context     any          // multicast: what JoinMulticast was given
}

// Event tells what has happened to an ID (struct rdma_cm_event).
type Event struct {
	Type     EventType
	ID       *ID // in EventConnectRequest a new one, which the receiver of the event owns
	ListenID *ID // EventConnectRequest: who listened

	// Status is 0 for success, a negated errno, or a positive code of the transport: the REJ reason in EventRejected, the
	// SIDR status in EventUnreachable.
	Status int

	Conn ConnParam // of connections: EventConnectRequest, EventConnectResponse, EventEstablished, EventRejected
	UD   UDParam   // of datagrams: EventConnectRequest, EventEstablished, EventMulticastJoin, EventMulticastError
	ECE  ECE       // EventConnectRequest, EventConnectResponse, EventEstablished: the peer's

	cause error  // of Status, if there is one
	owner *ID    // whose Close waits for the Ack
	group *group // and LeaveMulticast

	mu    sync.Mutex
	acked bool
}

// ECE is what two adapters of one vendor tell each other of their abilities (struct ibv_ece).
type ECE struct {
	VendorID uint32 // 24 bits
	Options  uint32
}

// Ack acknowledges an event (rdma_ack_cm_event): Close, Migrate and LeaveMulticast of its ID wait for that. A second
// one is EINVAL.
func (ev *Event) Ack() error {
	if ev == nil {
		return &Error{Op: "ack_cm_event", Errno: syscall.EINVAL, Detail: "there is no event"}
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.acked {
		return &Error{Op: "ack_cm_event", Errno: syscall.EINVAL, Detail: "the event has been acknowledged before"}
	}
	ev.acked = true
	ev.owner.acks.ack()
	if ev.group != nil {
		ev.group.acks.ack()
	}
	return nil
}

// Err is Status as an error, nil for success. The errno of a refused connection is ECONNREFUSED, that of EventDeviceRemoval ENODEV; a
// negative status is its own, and so is a positive one.
func (ev *Event) Err() error {
	if ev.Status == 0 && ev.Type != EventRejected && ev.Type != EventDeviceRemoval {
		return nil
	}
	e := &Error{Op: ev.Type.op(), Obj: locked(ev.ID, ev.ID.obj), Err: ev.cause}
	switch {
	case ev.Type == EventDeviceRemoval:
		e.Errno, e.Detail = syscall.ENODEV, "the device has gone"
	case ev.Type == EventRejected:
		e.Errno = syscall.ECONNREFUSED
		e.Detail = fmt.Sprintf("the peer refused, reason %v", cmmsg.Reason(ev.Status))
	case ev.Status < 0:
		e.Errno = syscall.Errno(-ev.Status)
		if ev.cause == nil {
			e.Detail = e.Errno.Error()
		}
	default:
		e.Errno = syscall.Errno(ev.Status)
		e.Detail = fmt.Sprintf("the peer answered %v", cmmsg.SIDRStatus(ev.Status))
	}
	return e
}

// op is the call that an event answers.
func (t EventType) op() string {
	switch t {
	case EventAddrResolved, EventAddrError:
		return "resolve_addr"
	case EventRouteResolved, EventRouteError:
		return "resolve_route"
	case EventDisconnected, EventTimewaitExit:
		return "disconnect"
	case EventMulticastJoin, EventMulticastError:
		return "join_multicast"
	}
	return "connect"
}

// acks counts the events that were retrieved and not acknowledged yet.
type acks struct {
	mu   sync.Mutex
	cond *sync.Cond
	open int
}

func (a *acks) take() {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
}

func (a *acks) ack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open--; a.open == 0 && a.cond != nil {
		a.cond.Broadcast()
	}
}

func (a *acks) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cond == nil {
		a.cond = sync.NewCond(&a.mu)
	}
	for a.open > 0 {
		a.cond.Wait()
	}
}

// push reports an event of the ID. It tells whether anybody can get it. id.mu is held.
func (id *ID) push(ev *Event) bool {
	if id.state == stDestroying {
		return false
	}
	ev.owner = id
	if ev.ID == nil {
		ev.ID = id
	}
	switch ev.Type {
	case EventRejected, EventUnreachable, EventConnectError, EventDisconnected:
		id.over = true
	}
	return id.ch.push(ev)
}

// handOver makes an event that was retrieved the business of another ID, whose Close waits for the Ack instead.
func (ev *Event) handOver(to *ID) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if !ev.acked {
		to.acks.take()
		ev.owner.acks.ack()
	}
	ev.owner = to
}

// aside tells whether the event is no call's result: what waits for one may pass over it.
func (t EventType) aside() bool { return t == EventAddrChange || t == EventTimewaitExit }

// retrieved does what has to be done when the program gets an event.
func (ev *Event) retrieved() {
	switch ev.Type {
	case EventConnectRequest:
		ev.ID.taken()
	case EventRejected, EventDisconnected:
		ev.ID.mu.Lock()
		ev.ID.failQP()
		ev.ID.mu.Unlock()
	case EventMulticastJoin:
		ev.attach()
	}
}
