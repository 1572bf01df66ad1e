package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
	"github.com/verbena-rdma/verbena/verbs"
)

// Connections over TCP, of iWARP devices. They have no management datagrams: the request is MPA's start-up frame, the
// port of an ID is the TCP port, and the end of the stream is the end of the connection. The parts of this file are
// called where connect.go, accept.go, listen.go and disconnect.go call the manager for other devices.

// streaming is an ID's connection over TCP.
type streaming struct {
	asking   context.CancelFunc // active: ends Dial
	incoming *iwtcp.Request     // passive: waits for Accept or Reject
	place    *atomic.Int64      // passive: the listener's count of requests that the program has not taken
	leaving  bool               // this side has called Disconnect
	number   uint32             // of a QP that the program has made itself
}

// sharedListener is the TCP listener of an ID, for all its devices.
type sharedListener struct {
	l     *iwtcp.Listener
	users int
	held  atomic.Int64 // requests that the program has not taken
}

// choices returns the devices for IDs of a port space, those to prefer first. Without iWARP devices these are all.
//
// +checklocks:h.mu
func (h *Host) choices(ps PortSpace) ([]*device, error) {
	want := os.Getenv(driver.EnvTransport)
	if want != "" && want != "iwarp" && want != "roce" {
		return nil, &Error{Op: "get_devices", Errno: syscall.EINVAL,
			Detail: fmt.Sprintf("%s=%q: must be roce or iwarp", driver.EnvTransport, want)}
	}
	devices, err := h.scan()
	if err != nil || !slices.ContainsFunc(devices, func(d *device) bool { return d.iwarp }) {
		return devices, err
	}
	var first, second []*device
	for _, d := range devices {
		switch {
		case d.iwarp && (ps != PSTCP || want == "roce"), !d.iwarp && ps == PSTCP && want == "iwarp":
		case d.iwarp:
			second = append(second, d)
		default:
			first = append(first, d)
		}
	}
	if first = append(first, second...); len(first) == 0 {
		return nil, &Error{Op: "get_devices", Errno: syscall.ENODEV, Detail: "no RDMA device for " + ps.String() +
			" with " + driver.EnvTransport + "=" + want}
	}
	return first, nil
}

// streamQP is the ID's QP as this file needs it.
//
// +checklocks:id.mu
func (id *ID) streamQP(op string) (iwtcp.Starter, error) {
	if id.qp == nil {
		if f := driver.Of[streamFinder](id.dev.ctx); f != nil {
			if s := f.FindStream(id.number); s != nil {
				return s, nil
			}
		}
		return nil, id.fail(op, syscall.EINVAL, "no QP: an ID of an iWARP device must have one, or name the number of one")
	}
	s, ok := driver.Of[verbs.DriverQP](id.qp).(iwtcp.Starter)
	if !ok {
		return nil, id.fail(op, syscall.EINVAL, "the QP is not one of an iWARP device")
	}
	return s, nil
}

// streamFinder is a context of an iWARP device. It finds the QPs of the device by their numbers.
type streamFinder interface {
	FindStream(num uint32) iwtcp.Starter
}

// firstMessages are the messages that may open a peer-to-peer connection.
const firstMessages = wire.RTRWrite | wire.RTRRead | wire.RTRSend

// Environment variables of connections over TCP. Kernels have parameters of their modules for these.
const (
	envCRC = "VERBENA_IWARP_CRC" // 1: this side asks for CRCs
	envP2P = "VERBENA_IWARP_P2P" // 0: this side does not ask for peer-to-peer mode
)

// streamOptions are the options of a start-up that the environment determines.
func streamOptions() (o iwarp.Options, err error) {
	if o.CRC, err = envSwitch(envCRC, false); err != nil {
		return o, err
	}
	o.PeerToPeer, err = envSwitch(envP2P, true)
	o.RTR = firstMessages
	return o, err
}

// envSwitch reads an environment variable that is 0 or 1.
func envSwitch(name string, unset bool) (bool, error) {
	switch v := os.Getenv(name); v {
	case "":
		return unset, nil
	case "0", "1":
		return v == "1", nil
	default:
		return false, &fault{fmt.Sprintf("%s=%q: must be 0 or 1", name, v), syscall.EINVAL}
	}
}

// connectStream asks the peer for a connection.
//
// +checklocks:id.mu
func (id *ID) connectStream(op string, p *ConnParam) error {
	id.number = p.QPNum
	if _, err := id.streamQP(op); err != nil {
		return err
	}
	var private []byte
	if id.ep != nil {
		private = append(private, id.ep.connect...)
	}
	private = append(private, p.PrivateData...)
	if err := id.checkPrivate(op, len(private), iwarp.MaxPrivate); err != nil {
		return err
	}
	id.respRes = least(p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	o, err := streamOptions()
	if err != nil {
		return id.because(op, err)
	}
	o.IRD, o.ORD, o.Private = int(id.respRes), int(id.initDepth), private
	ctx, cancel := context.WithCancel(context.Background())
	id.asking, id.state = cancel, stConnect
	id.step(inConnect)
	id.begin(false)
	if id.portUnread {
		id.movePort(0)
	}
	go id.dialStream(ctx, id.zoned(id.local), id.zoned(id.remote), o)
	return nil
}

// readPort notes that the program knows the port: it stays. If it may become a TCP port, it must be one that TCP can
// have: other programs' connections have ports too, and keep them in TIME_WAIT.
//
// +checklocks:id.mu
func (id *ID) readPort() {
	if !id.portUnread || id.state == stListen || id.conn != connNone {
		id.portUnread = false
		return
	}
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	devices := []*device{id.dev}
	if id.dev == nil {
		devices, _ = h.choices(id.ps)
	}
	streams := func(d *device) bool { return d.streams }
	if id.ps == PSTCP && id.local.Port() != 0 && slices.ContainsFunc(devices, streams) {
		for range portTries {
			if iwtcp.PortIsFree(id.zoned(id.local)) || h.ports.bindAnother(id) != nil {
				break
			}
		}
	}
	id.portUnread = false
}

// portTries is how many ports readPort tries.
const portTries = 1000

// movePort gives the ID another port than the one of the table, which the program has not read: the one that TCP has
// chosen, or 0 until it does.
//
// +checklocks:id.mu
func (id *ID) movePort(port uint16) {
	id.host.mu.Lock()
	defer id.host.mu.Unlock()
	id.host.ports.move(id, port)
}

// dialStream makes the connection and reports the result.
func (id *ID) dialStream(ctx context.Context, local, remote netip.AddrPort, o iwarp.Options) {
	c, err := iwtcp.Dial(ctx, local, remote, o)
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.conn != connRequesting || id.state == stDestroying || id.state == stRemoved {
		if c != nil {
			c.Close()
		}
		return
	}
	if err != nil {
		id.failStream(err)
		return
	}
	if at, _ := c.Addrs(); local.Port() == 0 {
		id.movePort(at.Port())
	}
	id.respRes, id.initDepth = uint8(c.Params.IRD), uint8(c.Params.ORD)
	ev := &Event{Type: EventEstablished, Conn: ConnParam{
		PrivateData: c.Private, ResponderResources: id.respRes, InitiatorDepth: id.initDepth,
	}}
	if err := id.startStream("connect", c); err != nil {
		id.report(inBroken, &Event{Type: EventConnectError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	id.report(inReply, ev)
}

// failStream reports that there is no connection, with the event that the kernel has for the errno.
//
// +checklocks:id.mu
func (id *ID) failStream(err error) {
	ev := &Event{Type: EventConnectError, Status: -int(errnoOf(err)), cause: err}
	var no *iwtcp.Refused
	switch {
	case errors.As(err, &no):
		ev.Type, ev.Conn.PrivateData = EventRejected, no.Private
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		ev.Type = EventRejected
	case errors.Is(err, syscall.ETIMEDOUT), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		ev.Type = EventUnreachable
	}
	in := inRejected
	if ev.Type == EventConnectError {
		in = inBroken
	}
	id.report(in, ev)
}

// startStream gives the QP its connection.
//
// +checklocks:id.mu
func (id *ID) startStream(op string, c *iwtcp.Conn) error {
	s, err := id.streamQP(op)
	if err != nil {
		c.Close()
		return err
	}
	if err := s.Start(c, id.onStreamEnd); err != nil {
		id.failQP("the connection could not be made")
		return err
	}
	return nil
}

// onStreamEnd reports the end of the connection. silent: the peer did not answer any more.
func (id *ID) onStreamEnd(silent bool) {
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying || id.state == stRemoved:
	case id.leaving && silent:
		id.onDisconnected(-int(syscall.ETIMEDOUT))
	case id.leaving:
		id.onDisconnected(0)
	case silent:
		id.onSilent()
	default:
		id.onPeerLeft()
	}
}

// listenStream begins to listen on a device. All devices of an ID share its TCP port. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) listenStream(d *device) error {
	if id.qpType != verbs.QPTypeRC {
		return id.fail("listen", syscall.EOPNOTSUPP, "QP type %v: must be RC on an iWARP device", id.qpType)
	}
	if _, err := streamOptions(); err != nil {
		return err
	}
	if id.tcp == nil || id.tcp.users == 0 { // the listener is closed when all devices have gone
		l, err := iwtcp.Listen(id.zoned(id.local), id.afonly, id.onStreamRequest)
		if err != nil {
			if errors.Is(err, syscall.EADDRINUSE) && id.portUnread {
				err = fmt.Errorf("%w: %w", errTaken, err)
			}
			return err
		}
		id.tcp = &sharedListener{l: l}
	}
	s := id.tcp
	s.users++
	id.listeners = append(id.listeners, deviceListener{dev: d, release: func() {
		if s.users--; s.users == 0 {
			s.l.Close()
		}
	}})
	return nil
}

// onStreamRequest makes a new ID of a request and reports it to the listener's channel.
func (id *ID) onStreamRequest(r *iwtcp.Request) {
	local, remote := r.Addrs()
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.tcp == nil || id.tcp.held.Load() >= int64(min(id.backlog.Limit(), iwtcp.Places(cm.MaxBacklog))) {
		r.Close()
		return
	}
	d, sgid := id.host.streamDevice(local.Addr())
	child := id.newChild()
	if child == nil || d == nil {
		r.Close()
		if child != nil {
			child.destroyAll()
		}
		return
	}
	child.mu.Lock()
	if child.state == stDestroying { // the channel was closed just now
		child.mu.Unlock()
		r.Close()
		return
	}
	child.qpType, child.tos, child.zone, child.keepAlive = id.qpType, id.tos, id.zone, id.keepAlive
	child.local, child.remote = local, remote
	id.host.mu.Lock()
	child.bindDevice(d, sgid)
	id.host.mu.Unlock()
	mtu, _ := d.mtu(sgid.port)
	child.path, child.haveRoute = child.makePath(mtu), true
	child.incoming, child.place, child.state = r, &id.tcp.held, stConnect
	child.place.Add(1)
	child.step(inRequest)
	child.begin(true)
	out := child.streamRequest(r)
	out.ListenID = id
	child.mu.Unlock()
	if !id.push(out) {
		child.destroyAll()
	}
}

// streamRequest is the event of a request.
//
// +checklocks:id.mu
func (id *ID) streamRequest(r *iwtcp.Request) *Event {
	most := id.dev.attr.MaxQPRdAtom
	ird, ord, ok := r.Depths()
	if !ok {
		ird, ord = most, most
	}
	id.respRes, id.initDepth = uint8(min(ord, most)), uint8(min(ird, most))
	return &Event{Type: EventConnectRequest, ID: id, Conn: ConnParam{
		PrivateData: r.Private(), ResponderResources: id.respRes, InitiatorDepth: id.initDepth,
	}}
}

// streamDevice finds the iWARP device of a local address.
func (h *Host) streamDevice(local netip.Addr) (*device, gidPlace) {
	h.mu.Lock()
	defer h.mu.Unlock()
	streams := slices.DeleteFunc(slices.Clone(h.devices), func(d *device) bool { return !d.streams })
	d, at := ownerOf(streams, local)
	if d == nil || d.start() != nil {
		return nil, noPlace
	}
	return d, at
}

// takenStream frees the request's place in its listener's backlog.
//
// +checklocks:id.mu
func (id *ID) takenStream() {
	if id.place != nil {
		id.place.Add(-1)
		id.place = nil
	}
}

// acceptStream answers a request, and starts the QP.
//
// +checklocks:id.mu
func (id *ID) acceptStream(op string, p *ConnParam) error {
	if id.conn != connRequested || id.incoming == nil {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: errNoRequest}
	}
	if p != nil {
		id.number = p.QPNum
	}
	if _, err := id.streamQP(op); err != nil {
		return err
	}
	o, err := streamOptions()
	if err != nil {
		return id.because(op, err)
	}
	o.MaxIRD = id.dev.attr.MaxQPRdAtom
	ird, ord := id.respRes, id.initDepth
	if p != nil {
		if err := id.checkPrivate(op, len(p.PrivateData), iwarp.MaxPrivate); err != nil {
			return err
		}
		q := id.orAsked(p, 0)
		ird, ord = least(q.ResponderResources, id.dev.attr.MaxQPRdAtom), least(q.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
		o.Private = p.PrivateData
	}
	o.IRD, o.ORD = int(ird), int(ord)
	r := id.incoming
	id.incoming = nil
	c, err := r.Accept(o)
	if err != nil { // nobody is there to take the answer
		err = &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Detail: err.Error(), Err: errNoRequest}
	} else {
		id.respRes, id.initDepth = uint8(c.Params.IRD), uint8(c.Params.ORD)
		err = id.because(op, id.startStream(op, c))
	}
	if err != nil {
		id.failQP("the request could not be accepted")
		id.step(inRefuse)
		return err
	}
	id.step(inAccept)
	id.report(inEstablished, &Event{Type: EventEstablished, Conn: ConnParam{
		ResponderResources: id.respRes, InitiatorDepth: id.initDepth,
	}})
	return nil
}

// rejectStream refuses a request.
//
// +checklocks:id.mu
func (id *ID) rejectStream(op string, private []byte) error {
	if id.conn != connRequested || id.incoming == nil {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: errNoRequest}
	}
	if err := id.checkPrivate(op, len(private), iwarp.MaxPrivate); err != nil {
		return err
	}
	r := id.incoming
	id.incoming = nil
	id.step(inRefuse)
	return id.because(op, r.Reject(private))
}

// disconnectStream ends the connection in order: what is posted is still sent. It reports whether EventDisconnected is
// still to come or to be read.
//
// +checklocks:id.mu
func (id *ID) disconnectStream(op string) (wait bool, err error) {
	switch {
	case id.conn.over():
		return id.unread(EventDisconnected), nil
	case id.conn != connEstablished:
		return false, id.fail(op, syscall.EINVAL, "%v", errNotEstablished)
	}
	id.leaving = true
	if s, err := id.streamQP(op); err == nil {
		s.Disconnect()
	}
	return true, nil
}

// endStream ends what Close finds: a request of this side, or one that was not answered.
//
// +checklocks:id.mu
func (id *ID) endStream() {
	id.takenStream()
	if id.asking != nil {
		id.asking()
		id.asking = nil
	}
	if r := id.incoming; r != nil {
		id.incoming = nil
		_ = r.Reject(nil)
	}
}

// hasConnection reports whether the ID has a connection, or has begun to make one.
//
// +checklocks:id.mu
func (id *ID) hasConnection() bool {
	return id.cmid != nil || id.dev != nil && (id.dev.streams || id.dev.kernel) && id.conn != connNone
}
