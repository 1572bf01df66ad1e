package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// listening is the part of an ID that listens.
type listening struct {
	listeners     []deviceListener
	backlog       *cm.Backlog
	tcp           *sharedListener // of iWARP devices; nil without any
	halfOpenLimit int             // 0 means cm.DefaultMaxHalfOpen
	kernelUsers   int             // adapters that share the kernel's listener
	kernelHeld    atomic.Int64    // requests from it that the program has not taken
}

// deviceListener is a listener on one of the devices.
type deviceListener struct {
	dev     *device
	l       *cm.Listener // nil of an iWARP device or an adapter
	release func()       // ends listening on an iWARP device or an adapter; nil of others
	unclaim func()       // nil without claim; see claim.on
}

// Listen begins to take requests to the address that the ID is bound to: on its device, or, if the address is a
// wildcard, on all devices, present and future (rdma_listen). An ID that is not bound gets a free port of all IPv4
// addresses. backlog is how many requests wait for the program; below 1 and above 1024 it is 1024. Requests beyond
// that are dropped, and the clients repeat them. EADDRINUSE or EADDRNOTAVAIL if another ID or process listens on the
// port, which SetReuseAddr may have allowed until now. EMFILE, ENFILE, ENOBUFS or ENOMEM without descriptors or memory
// for one of the devices. If the package chose the port and the program has not read it yet, Listen takes another port
// instead.
func (id *ID) Listen(backlog int) error {
	const op = "listen"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stAddrBound, stIdle); err != nil {
		return err
	}
	if id.state == stIdle {
		if err := id.bindAddr(op, netip.AddrPortFrom(netip.IPv4Unspecified(), 0)); err != nil {
			return err
		}
	}
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	id.backlog = cm.NewBacklog(backlog)
	devices := []*device{id.dev}
	if id.local.Addr().IsUnspecified() {
		var err error
		if devices, err = h.choices(id.ps); err != nil {
			return id.because(op, err)
		}
		devices = slices.Clone(devices)
		h.wild[id] = struct{}{} // first: the removal of a device during a claim ends listening on it
	}
	first := id.local.Port()
	err := id.listenOnAll(op, devices)
	for errors.Is(err, errTaken) && id.portUnread { // the program does not depend on the port yet
		if more := h.ports.bindAnother(id); more != nil || id.local.Port() == first {
			break
		}
		err = id.listenOnAll(op, devices)
	}
	if err != nil {
		delete(h.wild, id)
		return id.because(op, err)
	}
	h.look()
	id.state = stListen
	return nil
}

// listenOnAll begins to listen on all devices. Those whose UDP port another program has are left out; at least one
// must remain. It fails without descriptors or memory, and if the port cannot be claimed among the processes of this
// host. Host.mu is free during the claims. All come first, so that a listener on one device does not wait for a claim
// on another one with the lock of the ID held.
//
// +checklocks:id.mu
// +checklocks:id.host.mu
func (id *ID) listenOnAll(op string, devices []*device) error {
	if err := id.host.ports.conflict(op, id, id.local.Port(), false); err != nil {
		return err
	}
	var errs listenErrors
	var claimed []deviceListener
	for _, d := range devices {
		unclaim, err := id.claim().on(d)
		if err == nil {
			claimed = append(claimed, deviceListener{dev: d, unclaim: unclaim})
		}
		if errs.add(err) {
			id.giveBackAside(claimed)
			return err
		}
	}
	for i, c := range claimed {
		err := id.listenOn(c.dev, c.unclaim)
		if err != nil {
			id.giveBackAside(claimed[i : i+1])
		}
		if errs.add(err) {
			id.giveBackAside(append(id.unlisten(), claimed[i+1:]...))
			return err
		}
	}
	if len(id.listeners) == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// listenErrors are the errors of the devices that do not listen.
type listenErrors []error

// add adds an error, if it is not nil. It reports whether the ID cannot listen at all.
func (l *listenErrors) add(err error) (fatal bool) {
	same := func(e error) bool { return e.Error() == err.Error() } // iWARP devices share a TCP port
	if err != nil && !slices.ContainsFunc(*l, same) {
		*l = append(*l, err)
	}
	return errors.Is(err, errTaken) || errors.Is(err, errNotClaimed) || lookup.Exhausted(err)
}

// giveBackAside is giveBack without Host.mu, which the caller holds.
//
// +checklocks:id.host.mu
func (id *ID) giveBackAside(listeners []deviceListener) {
	id.host.mu.Unlock()
	giveBack(listeners)
	id.host.mu.Lock()
}

// errTaken: another process that shares the device listens on the port.
var errTaken = errors.New(
	"another process of this host listens on the port (verbena rdma resource show cm_id names it)")

// errNotClaimed: the process that leads at the address refuses the port to this one, or does not answer. Another port
// would be no better.
var errNotClaimed = errors.New("the port cannot be claimed among the processes of this host")

// claim is a service ID and the local address at which an ID listens to it; an invalid address stands for all.
type claim struct {
	service cmmsg.ServiceID
	at      netip.Addr
}

// claim is the claim that listening needs.
//
// +checklocks:id.mu
func (id *ID) claim() claim {
	c := claim{service: id.ps.service(id.local.Port())}
	if at := id.local.Addr().Unmap().WithZone(""); !at.IsUnspecified() {
		c.at = at
	}
	return c
}

// on starts a device and claims the service ID there, among the processes of this host. Host.mu is held, which the
// analyzer cannot see, and free meanwhile: the process that leads may be stopped. unclaim gives the ID back; it may
// wait for that process too, and is called without a lock. It is nil if the device needs no claim.
//
// +checklocksignore
func (c claim) on(d *device) (unclaim func(), err error) {
	if d.gone {
		return nil, &Error{Op: "listen", Errno: syscall.ENODEV, Detail: fmt.Sprintf("%v was removed", d.vdev)}
	}
	if err := d.start(); err != nil || d.streams || d.kernel {
		return nil, err
	}
	var release func()
	d.aside(func() { release, err = gsi.ClaimService(d.cm.port, uint64(c.service), c.at) })
	d.retire()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w: %w", errTaken, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotClaimed, err)
	}
	return func() {
		d.host.mu.Lock()
		defer d.host.mu.Unlock()
		d.aside(release)
		d.retire()
	}, nil
}

// giveBack gives back the claims of listeners that have ended. The caller holds no lock that others wait for.
func giveBack(listeners []deviceListener) {
	for _, l := range listeners {
		if l.unclaim != nil {
			l.unclaim()
		}
	}
}

// listenOn begins to listen on a device that has started, with a claim. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) listenOn(d *device, unclaim func()) error {
	switch {
	case d.gone:
		return id.fail("listen", syscall.ENODEV, "%v was removed", d.vdev)
	case d.streams:
		return id.listenStream(d)
	case d.kernel:
		return id.listenByKernel(d)
	}
	l, err := d.cm.listen(cm.ListenParams{
		Service: id.ps.service(id.local.Port()), UD: id.qpType == verbs.QPTypeUD, Kind: transportOf(id.qpType),
		Addr: id.local.Addr(), AFOnly: id.oneFamily(), GID: id.afIB, Backlog: id.backlog, MaxHalfOpen: id.halfOpenLimit,
		MTU: uint8(id.pathMTU), Context: id,
	})
	if err != nil {
		return err
	}
	id.listeners = append(id.listeners, deviceListener{dev: d, l: l, unclaim: unclaim})
	return nil
}

// SetHalfOpenLimit limits the handshakes of an ID that will listen: those that the program has not answered, and
// those that it has accepted and whose clients have not acknowledged that. The limit is n for clients that have
// connected to this device before and n for those that have not. A new request takes the place of an old one, whose
// ID gets EventUnreachable, or is dropped, and the client repeats it. The default is 16384; Listen of this package
// sets 1024, rsocket 256. librdmacm has no such call. EINVAL for n below 1 and after Listen.
func (id *ID) SetHalfOpenLimit(n int) error {
	const op = "set_half_open_limit"
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(op)
	case n < 1:
		return id.fail(op, syscall.EINVAL, "limit %d: must be 1 or more", n)
	case id.state == stListen:
		return id.fail(op, syscall.EINVAL, "limit set in %v: must be set before Listen", id.state)
	}
	id.halfOpenLimit = n
	return nil
}

// unlisten ends listening. The caller gives back the claims of the listeners that it returns.
//
// +checklocks:id.mu
func (id *ID) unlisten() []deviceListener {
	ended := id.listeners
	for _, l := range ended {
		l.end()
	}
	id.listeners, id.tcp = nil, nil
	return ended
}

// unlistenOn is unlisten on a device that was removed.
//
// +checklocks:id.mu
func (id *ID) unlistenOn(d *device) (ended []deviceListener) {
	id.listeners = slices.DeleteFunc(id.listeners, func(l deviceListener) bool {
		if l.dev == d {
			l.end()
			ended = append(ended, l)
		}
		return l.dev == d
	})
	return ended
}

// end ends a listener, except its claim. The ID's lock is held.
func (l *deviceListener) end() {
	if l.l != nil {
		l.dev.cm.unlisten(l.l)
	}
	if l.release != nil {
		l.release()
	}
}

// GetRequest waits for the next request of a synchronous listener (rdma_get_request). The new ID is synchronous too;
// its Event is the request, valid until Accept, Reject or Close. The listener may be closed before that. With
// CreateEP's QP attributes the ID has a QP already. EINVAL if the ID is asynchronous or does not listen, ENODEV when
// its device is removed meanwhile. Several goroutines may wait.
func (id *ID) GetRequest(ctx context.Context) (*ID, error) {
	const op = "get_request"
	id.mu.Lock()
	err := id.in(op, stListen)
	if err == nil && !id.sync {
		err = id.fail(op, syscall.EINVAL, "the ID is asynchronous: its requests are events of its channel")
	}
	ch, ep := id.ch, id.ep
	id.mu.Unlock()
	if err != nil {
		return nil, err
	}
	ev, err := id.result(ctx, op, ch)
	if err != nil {
		return nil, err
	}
	return id.adopt(op, ev, ep)
}

// adopt takes the new ID out of a listener's event.
func (id *ID) adopt(op string, ev *Event, ep *endpoint) (*ID, error) {
	if ev.Type != EventConnectRequest {
		id.mu.Lock()
		defer id.mu.Unlock()
		id.dropEvent()
		id.event = ev
		if ev.Type == EventDeviceRemoval {
			return nil, id.fail(op, syscall.ENODEV, deviceGone)
		}
		return nil, id.fail(op, syscall.EINVAL, "%v came instead of a request", ev.Type)
	}
	child := ev.ID
	ev.handOver(child)
	var err error
	child.mu.Lock()
	child.event = ev
	if ep != nil {
		child.ep = &endpoint{}
		if ep.init != nil {
			init := *ep.init
			err = child.createQP(op, ep.pd, &init)
		}
	}
	child.mu.Unlock()
	if err != nil {
		_ = child.Close()
		return nil, err
	}
	return child, nil
}
