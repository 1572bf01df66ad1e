package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// Connections of adapters, whose QP 1 and connection manager are the kernel's. The parts of this file are called where
// addr.go, route.go, connect.go, accept.go, listen.go and disconnect.go call the manager for other devices; the
// kernel's events are in kernelevents.go.

// kernelChannel is the kernel's connection manager: a *ucma.Channel. Tests have another one.
type kernelChannel interface {
	Close() error
	Next() (*ucma.Event, error)
	Create(uid uint64, portSpace uint16, qpType verbs.QPType) (uint32, error)
	Destroy(id uint32) error
	SetOption(id uint32, level, name int, value []byte) error
	Bind(id uint32, a netip.AddrPort, scope uint32) error
	Resolve(id uint32, from, to netip.AddrPort, scope, timeoutMS uint32) error
	ResolveRoute(id, timeoutMS uint32) error
	Query(id uint32) (ucma.Place, error)
	Listen(id uint32, backlog int) error
	Connect(id uint32, p *ucma.Param, e ucma.ECE) error
	Accept(id uint32, uid uint64, p *ucma.Param, e ucma.ECE) error
	Reject(id uint32, reason uint8, private []byte) error
	Disconnect(id uint32) error
	InitQPAttr(id uint32, s verbs.QPState) (verbs.QPAttr, verbs.QPAttrMask, error)
	Notify(id uint32, ev verbs.EventType) error
	Join(id uint32, uid uint64, group netip.AddrPort, scope uint32, flags uint16) (uint32, error)
	Leave(group uint32) error
}

// openKernel opens the kernel's connection manager.
func openKernel() (kernelChannel, error) { return ucma.Open() }

// kernelCM is the kernel's connection manager, for all adapters of a host.
type kernelCM struct {
	kernelChannel
	done sync.WaitGroup // run

	mu sync.Mutex // after all other locks
	// +checklocks:mu
	targets map[uint64]kernelTarget // by the number that events have
	// +checklocks:mu
	last uint64
}

// kernelTarget is what an event is for.
type kernelTarget struct {
	id    *ID
	group *group // nil of other events
}

// kernelPart is the kernel's ID of an ID.
type kernelPart struct {
	kernelID  uint32
	kernelUID uint64 // 0: there is none, or a request that is not accepted yet
	kernelHas bool
	byKernel  *kernelCM
}

// startKernel opens the kernel's connection manager, once.
//
// +checklocks:h.mu
func (h *Host) startKernel() error {
	if h.kernel != nil {
		return nil
	}
	c, err := h.openKernel()
	if err != nil {
		return err
	}
	h.kernel = &kernelCM{kernelChannel: c, targets: map[uint64]kernelTarget{}}
	h.kernel.done.Go(h.kernel.run)
	return nil
}

// stopKernel closes the kernel's connection manager. Host.mu is not held.
func (k *kernelCM) stopKernel() {
	if k != nil {
		_ = k.Close()
		k.done.Wait()
	}
}

// number makes the number that events for a target have.
func (k *kernelCM) number(t kernelTarget) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.last++
	k.targets[k.last] = t
	return k.last
}

// target finds what an event is for; the zero target if that has gone.
func (k *kernelCM) target(uid uint64) kernelTarget {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.targets[uid]
}

// forget ends the events of a target.
func (k *kernelCM) forget(uid uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.targets, uid)
}

// makeKernelID makes the kernel's ID, unless there is one. ID.mu and Host.mu are held; the analyzer knows the host by
// another name.
//
// +checklocksignore
func (id *ID) makeKernelID() error {
	if id.kernelHas {
		return nil
	}
	k := id.host.kernel
	uid := k.number(kernelTarget{id: id})
	n, err := k.Create(uid, uint16(id.ps), id.qpType)
	if err != nil {
		k.forget(uid)
		return err
	}
	id.kernelPart = kernelPart{n, uid, true, k}
	return id.setKernelOptions()
}

// setKernelOptions passes on what the program has set. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) setKernelOptions() error {
	var errs []error
	for _, o := range []struct {
		on    bool
		name  int
		value []byte
	}{
		{id.tos != 0, ucma.OptionTOS, []byte{id.tos}},
		{id.reuse, ucma.OptionReuseAddr, nativeTrue},
		{id.afonly, ucma.OptionAFOnly, nativeTrue},
		{id.ackTimeoutSet, ucma.OptionAckTimeout, []byte{id.ackTimeout}},
	} {
		if o.on {
			errs = append(errs, id.byKernel.SetOption(id.kernelID, ucma.LevelID, o.name, o.value))
		}
	}
	return errors.Join(errs...)
}

// kernelOption passes on an option that the program sets when the kernel has its ID.
//
// +checklocks:id.mu
func (id *ID) kernelOption(name int, value []byte) error {
	if !id.kernelHas {
		return nil
	}
	return id.because(opSetOption, id.byKernel.SetOption(id.kernelID, ucma.LevelID, name, value))
}

// scope is the number of the interface of the ID's link-local addresses, 0 if there is none.
//
// +checklocks:id.mu
func (id *ID) scope() uint32 {
	if id.zone == "" {
		return 0
	}
	i, err := net.InterfaceByName(id.zone)
	if err != nil {
		return 0
	}
	return uint32(i.Index)
}

// kernelLocal is the ID's address as the kernel is to bind it: without a port that the package has chosen, as the
// kernel has a table of ports of its own.
//
// +checklocks:id.mu
func (id *ID) kernelLocal() netip.AddrPort {
	if id.portUnread {
		return netip.AddrPortFrom(id.local.Addr(), 0)
	}
	return id.local
}

// bindKernel gives the kernel's ID its address. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) bindKernel() error {
	if id.kernelHas {
		return nil
	}
	err := id.makeKernelID()
	if err == nil {
		err = id.byKernel.Bind(id.kernelID, id.kernelLocal(), id.scope())
	}
	if err != nil {
		id.dropKernelID()
	}
	return err
}

// dropKernelID destroys the kernel's ID, if there is one: a request is refused, a connection ends.
//
// +checklocks:id.mu
func (id *ID) dropKernelID() {
	if !id.kernelHas {
		return
	}
	id.byKernel.forget(id.kernelUID)
	_ = id.byKernel.Destroy(id.kernelID)
	id.kernelPart = kernelPart{}
}

// milliseconds is a time-out for the kernel.
func milliseconds(d time.Duration) uint32 {
	if d <= 0 {
		d = stepTime
	}
	return uint32(min(d.Milliseconds()+1, 1<<31))
}

// resolveByKernel begins to resolve the peer's address.
//
// +checklocks:id.mu
func (id *ID) resolveByKernel(timeout time.Duration) error {
	if id.afIB {
		return id.fail("resolve_addr", verbs.EOPNOTSUPP, "GIDs as addresses: must be IP addresses on an adapter")
	}
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := id.makeKernelID(); err != nil {
		return err
	}
	return id.byKernel.Resolve(id.kernelID, id.kernelLocal(), id.remote, id.scope(), milliseconds(timeout))
}

// unresolveByKernel undoes resolveByKernel after an error. An ID that is in groups keeps the kernel's, with which these
// would end: the kernel has bound it, and resolves another address.
//
// +checklocks:id.mu
func (id *ID) unresolveByKernel() {
	if len(id.groups) == 0 {
		id.dropKernelID()
	}
}

// routeByKernel begins to resolve the path.
//
// +checklocks:id.mu
func (id *ID) routeByKernel(op string, timeout time.Duration) error {
	if id.pathMTU != 0 {
		return id.ownPathToKernel(op)
	}
	if err := id.byKernel.ResolveRoute(id.kernelID, milliseconds(timeout)); err != nil {
		return id.because(op, err)
	}
	id.state = stRouteQuery
	return nil
}

// ownPathToKernel gives the kernel a path with the MTU that the program has fixed, instead of the one that it would
// find.
//
// +checklocks:id.mu
func (id *ID) ownPathToKernel(op string) error {
	if id.dev.iwarp {
		return id.fail(op, verbs.EOPNOTSUPP, "path MTU %v is set: connections of an iWARP adapter have none", id.pathMTU)
	}
	mtu, err := id.routeMTU(op)
	if err != nil {
		id.push(&Event{Type: EventRouteError, Status: -int(errnoOf(err)), cause: err})
		return nil
	}
	p := id.makePath(mtu)
	return id.pathToKernel(op, p.data())
}

// pathToKernel gives the kernel a struct ibv_path_data. The kernel reports EventRouteResolved.
//
// +checklocks:id.mu
func (id *ID) pathToKernel(op string, data []byte) error {
	if err := id.byKernel.SetOption(id.kernelID, ucma.LevelIB, ucma.OptionPath, data); err != nil {
		return id.because(op, err)
	}
	id.path, id.state = parsePath(data[8:]), stRouteQuery
	return nil
}

// kernelParam is the parameters of this side for the kernel.
//
// +checklocks:id.mu
func (id *ID) kernelParam(p *ConnParam, private []byte) *ucma.Param {
	qpn, srq := id.ownQP(p)
	return &ucma.Param{
		QPN: qpn, SRQ: srq, Private: private, FlowControl: p.FlowControl, ResponderResources: id.respRes,
		InitiatorDepth: id.initDepth, RetryCount: min(7, p.RetryCount), RNRRetryCount: min(7, p.RNRRetryCount),
	}
}

// connectByKernel sends the request.
//
// +checklocks:id.mu
func (id *ID) connectByKernel(op string, p *ConnParam) error {
	private, err := id.requestData(op, p)
	if err != nil {
		return err
	}
	if !id.afIB {
		private = private[cmmsg.IPHeaderLen:] // the kernel adds the addresses
	}
	id.respRes = least(p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	if err := id.byKernel.Connect(id.kernelID, id.kernelParam(p, private), id.kernelECE()); err != nil {
		return id.because(op, err)
	}
	id.state = stConnect
	id.step(inConnect)
	id.begin(false)
	return nil
}

// kernelECE is this side's abilities.
//
// +checklocks:id.mu
func (id *ID) kernelECE() ucma.ECE { return ucma.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options} }

// connectQPByKernel moves the QP to RTS with the kernel's attributes. That of an iWARP adapter is moved by the kernel,
// with the connection.
//
// +checklocks:id.mu
func (id *ID) connectQPByKernel() error {
	if id.dev.iwarp {
		return nil
	}
	for _, s := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS} {
		a, mask, err := id.byKernel.InitQPAttr(id.kernelID, s)
		if err != nil {
			return err
		}
		a.QPState, a.MaxDestRdAtomic, a.MaxRdAtomic = s, id.respRes, id.initDepth
		if err := id.qp.Modify(&a, mask|verbs.QPAttrState); err != nil {
			return err
		}
	}
	return nil
}

// listenByKernel begins to listen on a device. All adapters of an ID share the kernel's listener. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) listenByKernel(d *device) error {
	if !id.kernelHas || id.kernelUsers == 0 {
		err := id.bindKernel()
		if err == nil {
			err = id.byKernel.Listen(id.kernelID, id.backlog.Limit())
		}
		if err != nil {
			id.dropKernelID()
			if errors.Is(err, syscall.EADDRINUSE) && id.portUnread {
				err = errors.Join(errTaken, err)
			}
			return err
		}
		id.learnPort()
	}
	id.kernelUsers++
	id.listeners = append(id.listeners, deviceListener{dev: d, release: func() { id.unlistenKernel() }})
	return nil
}

// unlistenKernel ends listening on one adapter. ID.mu is held, which the analyzer cannot see: it is called as release
// of a deviceListener.
//
// +checklocksignore
func (id *ID) unlistenKernel() {
	if id.kernelUsers--; id.kernelUsers == 0 {
		id.dropKernelID()
	}
}

// learnPort takes over the port that the kernel has chosen. Host.mu is held.
//
// +checklocks:id.mu
func (id *ID) learnPort() {
	if at, err := id.byKernel.Query(id.kernelID); err == nil && at.Local.Port() != 0 {
		id.local = netip.AddrPortFrom(id.local.Addr(), at.Local.Port())
	}
}

// acceptByKernel answers a request.
//
// +checklocks:id.mu
func (id *ID) acceptByKernel(op string, p *ConnParam) error {
	if id.conn != connRequested || !id.kernelHas {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: errNoRequest}
	}
	kind := cmmsg.KindREP
	if id.qpType == verbs.QPTypeUD {
		kind = cmmsg.KindSIDRREP
	}
	q := &ConnParam{}
	if p != nil {
		if err := id.checkPrivate(op, len(p.PrivateData), kind.PrivateLen()); err != nil {
			return err
		}
		q = p
	}
	q = id.orAsked(q, id.rnrRetry)
	id.respRes = least(q.ResponderResources, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(q.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	var err error
	if id.qp != nil && id.qpType != verbs.QPTypeUD {
		err = id.connectQPByKernel()
	}
	if err == nil {
		uid := id.byKernel.number(kernelTarget{id: id})
		id.kernelUID = uid
		err = id.byKernel.Accept(id.kernelID, uid, id.kernelParam(q, q.PrivateData), id.kernelECE())
	}
	if err != nil {
		id.failQP("the request could not be accepted")
		_ = id.byKernel.Reject(id.kernelID, uint8(cmmsg.RejConsumer), nil)
		id.step(inRefuse)
		return id.because(op, err)
	}
	id.step(inAccept)
	return nil
}

// rejectByKernel refuses a request.
//
// +checklocks:id.mu
func (id *ID) rejectByKernel(op string, reason cmmsg.Reason, private []byte) error {
	if !id.kernelHas || id.conn != connRequested && id.conn != connResponded {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: errNoRequest}
	}
	kind := cmmsg.KindREJ
	if id.qpType == verbs.QPTypeUD {
		kind = cmmsg.KindSIDRREP
	}
	if err := id.checkPrivate(op, len(private), kind.PrivateLen()); err != nil {
		return err
	}
	if err := id.byKernel.Reject(id.kernelID, uint8(reason), private); err != nil {
		return id.because(op, err)
	}
	id.step(inRefuse)
	return nil
}

// disconnectByKernel ends the connection. It reports whether EventDisconnected is still to come or to be read.
//
// +checklocks:id.mu
func (id *ID) disconnectByKernel(op string) (wait bool, err error) {
	over := id.conn.over()
	switch {
	case !over && id.conn != connEstablished && id.conn != connAccepted:
		return false, id.fail(op, syscall.EINVAL, "%v", errNotEstablished)
	case id.conn == connDisconnected:
		return id.unread(EventDisconnected), nil
	}
	id.failQP(id.endedBy())
	id.leaving = !over
	err = id.byKernel.Disconnect(id.kernelID)
	if over && errors.Is(err, syscall.EINVAL) {
		err = nil // the kernel has ended it meanwhile
	}
	return !over || id.unread(EventDisconnected), id.because(op, err)
}
