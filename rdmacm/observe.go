package rdmacm

import (
	"net/netip"
	"time"

	"github.com/verbena-rdma/verbena/observe"
)

// observed has the times of a connection for package observe. They are zero if nobody observed at that time.
type observed struct {
	passive bool      // a request made the ID
	began   time.Time // Connect has sent the request, or the request has arrived
	made    time.Time // established
}

// observe reports the result of a connection, which the program gets as ev.
//
// +checklocks:id.mu
func (id *ID) observe(ev *Event) {
	now := time.Now()
	e := observe.Event{Time: now, Local: id.local, Peer: id.remote, DestQPN: id.attrs.DestQPN}
	if ev.failed() {
		e.Err = ev.err(ev.Type.op(), id.obj())
	}
	if id.qp != nil {
		e.QPN = id.qp.QPN()
	}
	since := id.began
	switch ev.Type {
	case EventEstablished, EventConnectResponse:
		id.made = now
		e.Name = id.attempt()
	case EventRejected, EventUnreachable, EventConnectError:
		e.Name = id.attempt()
		if !id.made.IsZero() { // a REJ ends an established connection
			e.Name, since = observe.Disconnect, id.made
		}
	case EventDisconnected:
		e.Name, since = observe.Disconnect, id.made
	default:
		return
	}
	if !since.IsZero() {
		e.Duration = now.Sub(since)
	}
	e.Local, e.Peer = known(e.Local), known(e.Peer)
	observe.Emit(e)
}

// begin notes the begin of a connection.
func (o *observed) begin(passive bool) {
	o.passive = passive
	if observe.On() {
		o.began = time.Now()
	}
}

// attempt is the name of the event that ends the making of a connection.
func (o *observed) attempt() string {
	if o.passive {
		return observe.Accept
	}
	return observe.Connect
}

// known returns an address without the form of IPv4 in IPv6.
func known(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
