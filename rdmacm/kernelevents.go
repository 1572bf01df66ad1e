package rdmacm

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// nativeTrue is the number 1 as an int of C.
var nativeTrue = binary.NativeEndian.AppendUint32(nil, 1)

// run takes the kernel's events until the channel is closed.
func (k *kernelCM) run() {
	for {
		ev, err := k.Next()
		if err != nil {
			return
		}
		k.dispatch(ev)
	}
}

// dispatch passes an event to what it is for.
func (k *kernelCM) dispatch(ev *ucma.Event) {
	t := k.target(ev.UID)
	if EventType(ev.Type) == EventConnectRequest {
		if t.id == nil || !t.id.onKernelRequest(ev) {
			_ = k.Destroy(ev.ID)
		}
		return
	}
	if t.id == nil {
		return
	}
	if EventType(ev.Type) == EventDeviceRemoval {
		t.id.onKernelRemoval()
		return
	}
	id := t.id
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying, id.state == stRemoved, !id.kernelHas:
	case t.group != nil:
		id.onKernelGroup(ev, t.group)
	default:
		id.onKernelEvent(ev)
	}
}

// onKernelEvent takes an event of an ID of its own.
//
// +checklocks:id.mu
func (id *ID) onKernelEvent(ev *ucma.Event) {
	out := &Event{Type: EventType(ev.Type), Status: int(ev.Status)}
	switch out.Type {
	case EventAddrResolved, EventAddrError:
		id.onKernelAddr(out)
	case EventRouteResolved, EventRouteError:
		id.onKernelRoute(out)
	case EventConnectResponse:
		id.onKernelReply(ev)
	case EventEstablished:
		id.onKernelEstablished(ev)
	case EventRejected:
		out.Conn.PrivateData = ev.Param().Private
		id.report(inRejected, out)
	case EventUnreachable:
		if id.qpType == verbs.QPTypeUD && ev.Status > 0 {
			out.UD.PrivateData = ev.UD().Private
			id.report(inRejected, out)
			return
		}
		id.report(inTimeout, out)
	case EventConnectError:
		id.report(inBroken, out)
	case EventDisconnected:
		if id.leaving {
			id.onDisconnected(out.Status)
		} else {
			id.onPeerLeft()
		}
	case EventAddrChange, EventTimewaitExit:
		id.push(out)
	}
}

// onKernelAddr takes the result of address resolution. The kernel chooses the device: it may be another one of the
// same address.
//
// +checklocks:id.mu
func (id *ID) onKernelAddr(out *Event) {
	if id.state != stAddrQuery {
		return
	}
	err := error(nil)
	if out.Type == EventAddrResolved {
		err = id.moveToKernelDevice()
	}
	if out.Type == EventAddrError || err != nil {
		if err != nil {
			out = &Event{Type: EventAddrError, Status: -int(errnoOf(err)), cause: err}
		}
		id.unresolveByKernel()
		id.unresolve()
		id.state = stAddrBound
	} else {
		id.state = stAddrResolved
	}
	id.push(out)
}

// moveToKernelDevice binds the ID to the device and the address that the kernel has chosen.
//
// +checklocks:id.mu
func (id *ID) moveToKernelDevice() error {
	at, err := id.byKernel.Query(id.kernelID)
	if err != nil {
		return err
	}
	h := id.host
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.kernelDevice(at.GUID)
	switch {
	case d == nil:
		return id.fail("resolve_addr", syscall.ENODEV, "the kernel chose a device that this program does not have")
	case d != id.dev && (id.qp != nil || id.srq != nil):
		return id.fail("resolve_addr", syscall.ENODEV, "the kernel chose %v, and the ID has objects of %v", d.vdev,
			id.dev.vdev)
	}
	if err := d.start(); err != nil {
		return err
	}
	if d != id.dev {
		delete(id.dev.users, id)
		id.dev.retire()
	}
	id.local = at.Local
	id.bindDevice(d, d.findOn(at.Port, at.Local.Addr()))
	return nil
}

// kernelDevice finds an adapter by its GUID.
//
// +checklocks:h.mu
func (h *Host) kernelDevice(guid verbs.GUID) *device {
	for _, d := range h.devices {
		if d.kernel && !d.gone && d.vdev.GUID() == guid {
			return d
		}
	}
	return nil
}

// onKernelRoute takes the result of path resolution.
//
// +checklocks:id.mu
func (id *ID) onKernelRoute(out *Event) {
	if id.state != stRouteQuery {
		return
	}
	id.state = stAddrResolved
	if out.Type == EventRouteResolved {
		if id.pathMTU == 0 { // otherwise the path is pathToKernel's
			mtu, _ := id.dev.mtu(id.sgid.port)
			id.path = id.makePath(mtu)
		}
		id.haveRoute, id.state = true, stRouteResolved
	}
	id.push(out)
}

// onKernelReply takes the peer's REP: it moves the QP to RTS and sends the RTU. Without a QP the program does both.
//
// +checklocks:id.mu
func (id *ID) onKernelReply(ev *ucma.Event) {
	out := &Event{Type: EventEstablished, Conn: id.offer(ev), ECE: id.peerECE}
	if id.qp == nil {
		out.Type = EventConnectResponse
		id.report(inResponse, out)
		return
	}
	err := id.connectQPByKernel()
	if err == nil {
		err = id.byKernel.Accept(id.kernelID, id.kernelUID, nil, ucma.ECE{})
	}
	if err != nil {
		id.failQP("the connection could not be made")
		_ = id.byKernel.Reject(id.kernelID, uint8(cmmsg.RejConsumer), nil)
		id.report(inBroken, &Event{Type: EventConnectError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	id.report(inReply, out)
}

// offer takes over the peer's parameters.
//
// +checklocks:id.mu
func (id *ID) offer(ev *ucma.Event) ConnParam {
	p := ev.Param()
	id.peerECE = ECE{VendorID: ev.ECE.Vendor, Options: ev.ECE.Options}
	id.respRes = least(p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	id.rnrRetry = p.RNRRetryCount
	return ConnParam{
		PrivateData: p.Private, ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		FlowControl: p.FlowControl, RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount, SRQ: p.SRQ, QPNum: p.QPN,
	}
}

// onKernelEstablished takes the RTU; of the active side the answer to a look-up, or the reply of iWARP, which has no
// RTU.
//
// +checklocks:id.mu
func (id *ID) onKernelEstablished(ev *ucma.Event) {
	active := id.conn == connRequesting
	if id.qpType == verbs.QPTypeUD {
		if !active {
			return
		}
		u := ev.UD()
		id.peerECE = ECE{VendorID: ev.ECE.Vendor, Options: ev.ECE.Options}
		id.report(inReply, &Event{Type: EventEstablished, ECE: id.peerECE, UD: UDParam{
			PrivateData: u.Private, AHAttr: u.AH, QPNum: u.QPN, QKey: u.QKey,
		}})
		return
	}
	if id.dev.iwarp && id.qp != nil {
		gsi.Moved(id.qp, verbs.QPSRTS)
	}
	if active {
		id.report(inReply, &Event{Type: EventEstablished, Conn: id.offer(ev), ECE: id.peerECE})
		return
	}
	id.report(inEstablished, &Event{Type: EventEstablished, Conn: ConnParam{
		ResponderResources: id.respRes, InitiatorDepth: id.initDepth,
	}})
}

// onKernelRequest makes a new ID of a request and reports it to the listener's channel. It reports whether it did.
func (id *ID) onKernelRequest(ev *ucma.Event) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if !id.kernelHas || id.kernelHeld.Load() >= int64(id.backlog.Limit()) {
		return false
	}
	at, err := id.byKernel.Query(ev.ID)
	if err != nil || id.asksForMore(ev.ID) {
		return false
	}
	child := id.newChild()
	if child == nil {
		return false
	}
	child.mu.Lock()
	out := child.takeKernelRequest(id, ev, at)
	child.mu.Unlock()
	if out == nil {
		child.destroyAll()
		return false
	}
	if !id.push(out) {
		child.destroyAll() // and the kernel's ID with it
	}
	return true
}

// asksForMore reports whether a request asks for a larger path MTU than the program permits. The kernel refuses it then
// with reason 28, as programs can give no other.
//
// +checklocks:id.mu
func (id *ID) asksForMore(request uint32) bool {
	if id.pathMTU == 0 || id.qpType == verbs.QPTypeUD {
		return false
	}
	a, mask, err := id.byKernel.InitQPAttr(request, verbs.QPSRTR)
	return err == nil && mask&verbs.QPAttrPathMTU != 0 && a.PathMTU > id.pathMTU
}

// takeKernelRequest takes addresses and parameters from a request. nil if its device has gone, or the channel.
//
// +checklocks:id.mu
// +checklocks:l.mu
func (id *ID) takeKernelRequest(l *ID, ev *ucma.Event, at ucma.Place) *Event {
	if id.state == stDestroying { // the channel was closed just now
		return nil
	}
	id.host.mu.Lock()
	d := id.host.kernelDevice(at.GUID)
	if d == nil || d.start() != nil {
		id.host.mu.Unlock()
		return nil
	}
	id.bindDevice(d, d.findOn(at.Port, at.Local.Addr()))
	id.local, id.remote = at.Local, at.Remote
	id.host.mu.Unlock()
	id.qpType, id.tos, id.zone = l.qpType, l.tos, l.zone
	id.ackTimeout, id.ackTimeoutSet = l.ackTimeout, l.ackTimeoutSet
	id.kernelPart = kernelPart{kernelID: ev.ID, kernelHas: true, byKernel: l.byKernel}
	mtu, _ := d.mtu(id.sgid.port)
	id.path, id.haveRoute = id.makePath(mtu), true
	id.place, id.state = &l.kernelHeld, stConnect
	id.place.Add(1)
	id.step(inRequest)
	id.begin(true)
	out := &Event{Type: EventConnectRequest, ID: id, ListenID: l}
	if id.qpType == verbs.QPTypeUD {
		out.UD = UDParam{PrivateData: ev.UD().Private}
		out.Conn = ConnParam{PrivateData: out.UD.PrivateData}
	} else {
		out.Conn = id.offer(ev)
	}
	id.peerECE = ECE{VendorID: ev.ECE.Vendor, Options: ev.ECE.Options}
	out.ECE = id.peerECE
	return out
}

// onKernelRemoval takes the removal of the ID's device.
func (id *ID) onKernelRemoval() {
	id.mu.Lock()
	d := id.dev
	id.mu.Unlock()
	if d != nil {
		d.remove()
	}
}

// joinByKernel begins to join a group.
//
// +checklocks:id.mu
func (id *ID) joinByKernel(op string, g *group) error {
	h := id.host
	h.mu.Lock()
	err := id.bindKernel()
	h.mu.Unlock()
	if err != nil {
		return id.because(op, err)
	}
	flags := uint16(JoinFullMember)
	if g.sendOnly {
		flags = uint16(JoinSendOnlyFullMember)
	}
	g.uid = id.byKernel.number(kernelTarget{id, g})
	g.kernelID, err = id.byKernel.Join(id.kernelID, g.uid, netip.AddrPortFrom(g.addr, 0), id.scope(), flags)
	if err != nil {
		id.byKernel.forget(g.uid)
	}
	return id.because(op, err)
}

// onKernelGroup takes the result of joining a group.
//
// +checklocks:id.mu
func (id *ID) onKernelGroup(ev *ucma.Event, g *group) {
	if id.groups[g.addr] != g {
		return
	}
	out := &Event{Type: EventType(ev.Type), Status: int(ev.Status), group: g, UD: UDParam{Context: g.context}}
	if out.Type == EventMulticastJoin {
		u := ev.UD()
		g.gid, g.mlid = u.AH.GRH.DGID, u.AH.DLID
		out.UD = UDParam{AHAttr: u.AH, QPNum: u.QPN, QKey: u.QKey, Context: g.context}
	} else {
		delete(id.groups, g.addr)
		_ = id.leaveByKernel(g)
	}
	id.push(out)
}

// leaveByKernel leaves a group.
//
// +checklocks:id.mu
func (id *ID) leaveByKernel(g *group) error {
	if !id.kernelHas {
		return nil
	}
	id.byKernel.forget(g.uid)
	err := id.byKernel.Leave(g.kernelID)
	if errors.Is(err, syscall.ENOENT) { // after MULTICAST_ERROR
		err = nil
	}
	return err
}
