package rdmacm

import (
	"fmt"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/verbs"
)

// ConnParam are the parameters of a connection (struct rdma_conn_param): in Connect and Accept those of this side, in
// an Event those of the peer, seen from this side. The zero value is right for most connections: in Connect and Accept
// a number that is 0 stands for a default, and [Zero] for the number 0, for which C programs write 0.
type ConnParam struct {
	// PrivateData is sent to the peer: at most 56 bytes with Connect and 196 with Accept, for datagrams 180 and
	// 136; 92 and 216 with Connect of an ID that has a SockaddrIB. It is copied. In an event it always has the
	// full length, the rest zero.
	PrivateData []byte

	// ResponderResources is how many READs and atomics of the peer this side takes at a time, InitiatorDepth how
	// many this side has outstanding. 0xFF, the default, means the device's maximum; in Accept at most what the request
	// has. An event has the values that suit the peer.
	ResponderResources uint8
	InitiatorDepth     uint8

	FlowControl bool // sent to the peer, not used

	// RetryCount is of both sides' QPs, and not used by Accept. RNRRetryCount is of the peer's QP; 7 means no limit. Both
	// are 0 to 7, and larger values but Zero count as 7. By default Connect takes 7, and Accept the request's.
	RetryCount    uint8
	RNRRetryCount uint8

	// SRQ and QPNum describe the caller's QP, if the ID has none of its own. In an event they are those of the
	// peer.
	SRQ   bool
	QPNum uint32
}

// Zero selects the number 0 in a field of ConnParam whose zero value selects a default: ConnParam{RNRRetryCount: Zero}
// makes a request of the peer fail if it finds no receive. verbs.Zero is another number: in ResponderResources and
// InitiatorDepth it is MaxRespRes and MaxInitDepth, the most.
const Zero = 0xFE

// orZero returns def for 0, 0 for Zero, and v otherwise.
func orZero(v, def uint8) uint8 {
	switch v {
	case 0:
		return def
	case Zero:
		return 0
	}
	return v
}

// orDefaults replaces the numbers that are 0 by defaults, and Zero by 0.
func (p *ConnParam) orDefaults(def *ConnParam) *ConnParam {
	q := *p
	q.ResponderResources = orZero(p.ResponderResources, def.ResponderResources)
	q.InitiatorDepth = orZero(p.InitiatorDepth, def.InitiatorDepth)
	q.RetryCount, q.RNRRetryCount = orZero(p.RetryCount, def.RetryCount), orZero(p.RNRRetryCount, def.RNRRetryCount)
	return &q
}

// UDParam is the address of a datagram service or a multicast group (struct rdma_ud_param).
type UDParam struct {
	PrivateData []byte
	AHAttr      verbs.AHAttr // for an address handle to the peer or group
	QPNum       uint32       // destination QP
	QKey        uint32       // Q_Key to send with
	Context     any          // multicast: userContext of JoinMulticast
}

// Event is an event of an ID (struct rdma_cm_event).
type Event struct {
	Type     EventType
	ID       *ID // EventConnectRequest: a new ID, which the receiver of the event owns
	ListenID *ID // EventConnectRequest: the listener

	// Status is 0 for success, a negated errno, or a positive code of the transport: the REJ reason in
	// EventRejected, the SIDR status in EventUnreachable.
	Status int

	Conn ConnParam // of connections: EventConnectRequest, EventConnectResponse, EventEstablished, EventRejected
	UD   UDParam   // of datagrams: EventConnectRequest, EventEstablished, EventMulticastJoin, EventMulticastError
	ECE  ECE       // EventConnectRequest, EventConnectResponse, EventEstablished: the peer's
	Arg  uint64    // EventUser: arg of WriteEvent

	cause error  // of Status, if there is one
	owner *ID    // whose Close waits for the Ack
	group *group // and LeaveMulticast

	mu    sync.Mutex
	acked bool
}

// ECE describes the vendor-specific abilities of an adapter, which both sides exchange (struct ibv_ece).
type ECE = verbs.ECE

// Ack acknowledges an event (rdma_ack_cm_event): Close, Migrate and LeaveMulticast of its ID wait for that. EINVAL if
// the event was acknowledged before, or is not one that a channel or an ID has returned.
func (ev *Event) Ack() error {
	if ev == nil || ev.owner == nil {
		return &Error{Op: "ack_cm_event", Errno: syscall.EINVAL, Detail: "no event: must be one of GetEvent"}
	}
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if ev.acked {
		return &Error{Op: "ack_cm_event", Errno: syscall.EINVAL, Detail: "the event is acknowledged already"}
	}
	ev.acked = true
	ev.owner.acks.ack()
	if ev.group != nil {
		ev.group.acks.ack()
	}
	return nil
}

// Err is Status as an error, nil for success. The errno of EventRejected is ECONNREFUSED, that of EventDeviceRemoval
// ENODEV, else it is the absolute value of Status.
func (ev *Event) Err() error {
	if !ev.failed() {
		return nil
	}
	return ev.err(ev.Type.op(), ev.ID.lockedObj())
}

func (ev *Event) failed() bool {
	return ev.Status != 0 || ev.Type == EventRejected || ev.Type == EventDeviceRemoval
}

// deviceGone is the clause for calls that a device's removal ends.
const deviceGone = "the device was removed"

// err is Err of an event that failed, as the error of the call op; obj describes its ID.
func (ev *Event) err(op, obj string) error {
	e := &Error{Op: op, Obj: obj, Err: ev.cause}
	if own, ok := ev.cause.(*Error); ok && own.Op == op { // the call is named once
		e.Detail, e.Hint, e.Err = own.Detail, own.Hint, own.Err
	}
	switch {
	case ev.Type == EventDeviceRemoval:
		e.Errno, e.Detail = syscall.ENODEV, deviceGone
	case ev.Type == EventRejected && ev.Status < 0: // over TCP
		e.Errno, e.Detail = syscall.ECONNREFUSED, "the peer refused"
	case ev.Type == EventRejected:
		e.Errno = syscall.ECONNREFUSED
		e.Detail = fmt.Sprintf("the peer refused, reason %v", cmmsg.Reason(ev.Status))
		e.Hint = refusals[cmmsg.Reason(ev.Status)]
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

// refusals are the meanings of the most frequent reasons of rejections.
var refusals = map[cmmsg.Reason]string{
	cmmsg.RejNoResources:      "its backlog or its table of connections is full: try again later",
	cmmsg.RejTimeout:          "it has given up to wait: try again",
	cmmsg.RejInvalidServiceID: "nobody listens there: start the server first, and compare address and port",
	cmmsg.RejStale:            "it still has an old connection to this QP, and ends it: try again",
	cmmsg.RejInvalidGID:       "its port does not have this address or this P_Key: compare both with those of its device",
	cmmsg.RejInvalidMTU:       "its port cannot have this path MTU: connect with a smaller one",
	cmmsg.RejConsumer:         "its program refused this connection, or listens at another address: look at its output",
}

// op is the call whose result an event is.
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
	case EventAddrInfoResolved, EventAddrInfoError:
		return "resolve_addrinfo"
	case EventUser:
		return "write_cm_event"
	}
	return "connect"
}

// acks counts the events that are retrieved and not acknowledged.
type acks struct {
	mu sync.Mutex
	// +checklocks:mu
	cond *sync.Cond
	// +checklocks:mu
	open int
}

// take counts an event that is retrieved.
func (a *acks) take() {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
}

// ack counts an event that is acknowledged.
func (a *acks) ack() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open--; a.open == 0 && a.cond != nil {
		a.cond.Broadcast()
	}
}

// pending reports whether an event is not acknowledged.
func (a *acks) pending() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open > 0
}

// wait waits until all events are acknowledged.
func (a *acks) wait() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.open > 0 {
		if a.cond == nil {
			a.cond = sync.NewCond(&a.mu)
		}
		a.cond.Wait()
	}
}

// push puts an event of the ID into its channel. It reports whether a program can retrieve it.
//
// +checklocks:id.mu
func (id *ID) push(ev *Event) bool {
	if id.state == stDestroying {
		return false
	}
	ev.owner = id
	if ev.ID == nil {
		ev.ID = id
	}
	if observe.On() {
		id.observe(ev)
	}
	return id.ch.push(ev)
}

// handOver makes another ID the owner of an event that was retrieved: that ID's Close waits for the Ack instead.
func (ev *Event) handOver(to *ID) {
	ev.mu.Lock()
	defer ev.mu.Unlock()
	if !ev.acked {
		to.acks.take()
		ev.owner.acks.ack()
	}
	ev.owner = to
}

// aside reports whether the event is not the result of a call: calls that wait for a result skip it.
func (t EventType) aside() bool {
	return t == EventAddrChange || t == EventTimewaitExit || t == EventUser
}
