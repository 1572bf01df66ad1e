package rdmacm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// deviceListener is a listener on one of the devices.
type deviceListener struct {
	dev     *device
	l       *cm.Listener
	release func() // gives the service ID back to other processes
}

// Listen begins to take requests to the address that the ID is bound to: on its device, or, if that is a wildcard, on
// all devices, those that come later included (rdma_listen). An ID that is not bound gets a free port of all IPv4 addresses. backlog
// is how many requests wait for the program; below 1 and above 1024 it is 1024. Requests beyond that are dropped, and the peers
// try again. EADDRINUSE or EADDRNOTAVAIL if others have the port, which SetReuseAddr may have allowed until now. A port that the system was to
// choose is another one then, unless the program has asked already which one it is.
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
		if devices, err = h.scan(); err != nil {
			return id.because(op, err)
		}
	}
	first := id.local.Port()
	err := id.listenOnAll(op, devices)
	for errors.Is(err, errTaken) && id.unseen { // any port will do
		if more := h.ports.bindAnother(id); more != nil || id.local.Port() == first {
			break
		}
		err = id.listenOnAll(op, devices)
	}
	if err != nil {
		return id.because(op, err)
	}
	if id.local.Addr().IsUnspecified() {
		h.wild[id] = struct{}{}
		h.look()
	}
	id.state = stListen
	return nil
}

// listenOnAll begins to listen on all devices. One whose UDP port another program has is left out, but one of them must be there.
func (id *ID) listenOnAll(op string, devices []*device) error {
	if err := id.host.ports.conflict(op, id, id.local.Port(), false); err != nil {
		return err
	}
	var errs []error
	for _, d := range devices {
		err := id.listenOn(d)
		if errors.Is(err, errTaken) {
			id.unlisten()
			return err
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(id.listeners) == 0 {
		return errors.Join(errs...)
	}
	return nil
}

// errTaken says that another process that shares the device listens on the port.
var errTaken = errors.New("another process of this host listens on the port (verbena rdma resource show cm_id names it)")

// listenOn begins to listen on a device. Host.mu is held.
func (id *ID) listenOn(d *device) error {
	if d.gone {
		return id.fail("listen", syscall.ENODEV, "%v has gone", d.vdev)
	}
	if err := d.start(); err != nil {
		return err
	}
	service, at := id.ps.service(id.local.Port()), id.local.Addr().Unmap().WithZone("")
	if at.IsUnspecified() {
		at = netip.Addr{}
	}
	release, err := d.port.ClaimService(uint64(service), at)
	if err != nil {
		return fmt.Errorf("%w: %w", errTaken, err)
	}
	err = d.do(func(m *cm.Machine, _ int64, _ *cm.Batch) error {
		l, err := m.Listen(cm.ListenParams{
			Service: service, UD: id.qpType == verbs.QPTypeUD, Kind: transportOf(id.qpType), Addr: id.local.Addr(),
			AFOnly: id.afonly, GID: id.afIB, Backlog: id.backlog, Context: id,
		})
		if err == nil {
			id.listeners = append(id.listeners, deviceListener{d, l, release})
		}
		return err
	})
	if err != nil {
		release()
	}
	return err
}

// unlisten ends listening. id.mu is held.
func (id *ID) unlisten() {
	for _, l := range id.listeners {
		_ = l.dev.do(func(m *cm.Machine, _ int64, _ *cm.Batch) error {
			m.Unlisten(l.l)
			return nil
		})
		l.release()
	}
	id.listeners = nil
}

// GetRequest waits for the next request (rdma_get_request) of a synchronous listener. The new ID is synchronous too; its Event is
// the request, valid until Accept, Reject or Close. The listener may be closed before that. With CreateEP's QP attributes it has a QP already. EINVAL if the
// ID is asynchronous or does not listen. Several goroutines may wait.
func (id *ID) GetRequest(c context.Context) (*ID, error) {
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
	ev, err := ch.result(c)
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

// Accept answers a request with yes (rdma_accept), called for the new ID of EventConnectRequest. The ID's QP goes to RTS first. With
// p nil the request's own parameters are used, as far as the device can. EventEstablished follows when the peer has
// acknowledged; a synchronous ID waits for it. The answer to a datagram look-up has no such event.
//
// EINVAL for bad parameters, or if the peer has given up. A QP that cannot be connected makes the request a refused one.
func (id *ID) Accept(c context.Context, p *ConnParam) error {
	const op = "accept"
	id.mu.Lock()
	if err := id.accept(op, p); err != nil {
		id.mu.Unlock()
		return err
	}
	if id.qpType == verbs.QPTypeUD {
		id.dropEvent()
		id.mu.Unlock()
		return nil
	}
	id.mu.Unlock()
	return id.complete(c, op)
}
