package rdmacm

import (
	"context"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// Connect asks the peer for a connection, or a datagram service for its QP (rdma_connect). The route has been resolved. p may be
// nil if the ID has a QP: retries of 7, READs and atomics as the device can, no private data.
//
// What comes of it is EventEstablished; EventConnectResponse if the ID has no QP; EventRejected, with the peer's private data;
// EventUnreachable; EventConnectError. EINVAL if the route is not resolved, or for bad parameters; nothing has happened then.
func (id *ID) Connect(c context.Context, p *ConnParam) error {
	const op = "connect"
	id.mu.Lock()
	if err := id.connect(op, p); err != nil {
		id.mu.Unlock()
		return err
	}
	id.mu.Unlock()
	return id.complete(c, op)
}

func (id *ID) connect(op string, p *ConnParam) error {
	if err := id.in(op, stRouteResolved); err != nil {
		return err
	}
	if err := id.checkParam(op, p); err != nil {
		return err
	}
	if p == nil {
		p = &ConnParam{RetryCount: 7, RNRRetryCount: 7, ResponderResources: MaxRespRes, InitiatorDepth: MaxInitDepth}
	}
	private, err := id.requestData(op, p)
	if err != nil {
		return err
	}
	path := id.cmRoute()
	service := id.ps.service(id.remote.Port())
	err = id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		cmid := m.NewID(id)
		if id.qpType == verbs.QPTypeUD {
			err = m.Lookup(now, cmid, &cm.LookupParams{Service: service, Path: path, Private: private}, out)
		} else {
			id.respRes, id.initDepth = least(p.ResponderResources, id.dev.attr.MaxQPRdAtom), least(p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
			qpn, srq := id.ownQP(p)
			err = m.Connect(now, cmid, &cm.ConnectParams{
				Service: service, Path: path, Transport: transportOf(id.qpType), QPN: qpn, SRQ: srq, FlowControl: p.FlowControl,
				ResponderResources: id.respRes, InitiatorDepth: id.initDepth, RetryCount: min(7, p.RetryCount), RNRRetry: min(7, p.RNRRetryCount),
				ECE: cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}, Private: private,
			}, out)
		}
		if err == nil {
			id.cmid = cmid
		}
		return err
	})
	if err != nil {
		return id.because(op, err)
	}
	id.state = stConnect
	return nil
}

// least is a number of READs, or the device's maximum if that is smaller.
func least(n uint8, limit int) uint8 { return uint8(min(int(n), limit)) }

// checkParam checks the parameters of Connect and Accept.
func (id *ID) checkParam(op string, p *ConnParam) error {
	switch {
	case p == nil && id.qp == nil && id.qpType != verbs.QPTypeUD:
		return id.fail(op, syscall.EINVAL, "the ID has no QP, so there must be parameters with a QP number")
	case p == nil || id.ps != PSTCP:
		return nil
	case p.ResponderResources != MaxRespRes && int(p.ResponderResources) > id.dev.attr.MaxQPRdAtom:
		return id.fail(op, syscall.EINVAL, "%d responder resources; the device has %d", p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	case p.InitiatorDepth != MaxInitDepth && int(p.InitiatorDepth) > id.dev.attr.MaxQPInitRdAtom:
		return id.fail(op, syscall.EINVAL, "initiator depth %d; the device has %d", p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	}
	return nil
}

// checkPrivate checks the length of private data.
func (id *ID) checkPrivate(op string, n, limit int) error {
	if n > limit {
		return id.fail(op, syscall.EINVAL, "%d bytes of private data; there is room for %d", n, limit)
	}
	return nil
}

// requestData is the private data of a request: the addresses, what the name service wants said, and the program's.
func (id *ID) requestData(op string, p *ConnParam) ([]byte, error) {
	kind := cmmsg.KindREQ
	if id.qpType == verbs.QPTypeUD {
		kind = cmmsg.KindSIDRREQ
	}
	var prefix []byte
	if id.ep != nil {
		prefix = id.ep.connect
	}
	room := kind.PrivateLen()
	if !id.afIB {
		room -= cmmsg.IPHeaderLen
	}
	if err := id.checkPrivate(op, len(prefix)+len(p.PrivateData), room); err != nil {
		return nil, err
	}
	b := make([]byte, 0, kind.PrivateLen())
	if !id.afIB {
		b = cmmsg.AppendIPHeader(b, id.local, id.remote.Addr())
	}
	return append(append(b, prefix...), p.PrivateData...), nil
}

// cmRoute is the path of the ID in the terms of package cm.
func (id *ID) cmRoute() cm.Path {
	p := &id.path
	return cm.Path{
		Path: link.Path{Src: id.local.Addr(), Dst: id.remote.Addr(), TClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel},
		PKey: p.PKey, MTU: uint8(p.MTU), SL: p.SL, Rate: p.Rate, LifeTime: p.PacketLifeTime,
	}
}

// ownQP is the QP that the peer is told.
func (id *ID) ownQP(p *ConnParam) (qpn uint32, srq bool) {
	if id.qp != nil {
		return id.qp.QPN(), id.qp.SRQ() != nil
	}
	return p.QPNum, p.SRQ
}

func transportOf(t verbs.QPType) cmmsg.Transport {
	switch t {
	case verbs.QPTypeUC:
		return cmmsg.UC
	case verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv:
		return cmmsg.XRC
	}
	return cmmsg.RC
}

// Establish completes the connection of an ID without QP, after EventConnectResponse (rdma_establish): the peer gets its
// EventEstablished. The program has moved its QP to RTS. EINVAL if the ID has a QP, or has got no response.
func (id *ID) Establish() error {
	const op = "establish"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	if id.qp != nil || id.cmid == nil {
		return id.fail(op, syscall.EINVAL, "the ID has a QP, so it is established without this")
	}
	return id.because(op, id.dev.do(func(m *cm.Machine, _ int64, out *cm.Batch) error { return m.Establish(id.cmid, nil, out) }))
}

// Disconnect ends the connection, or agrees to the peer's wish to end it (rdma_disconnect). The ID's QP goes to ERR, so
// its requests are flushed. Whoever begins gets EventDisconnected when the peer has agreed, which is when its
// program calls Disconnect or Close, or with -ETIMEDOUT when it never does. Both sides should call it. Repeating it
// does no harm. EINVAL if there never was a connection.
func (id *ID) Disconnect(c context.Context) error {
	const op = "disconnect"
	id.mu.Lock()
	if err := id.in(op, stConnect, stDisconnect); err != nil {
		id.mu.Unlock()
		return err
	}
	if id.cmid == nil || id.qpType == verbs.QPTypeUD {
		defer id.mu.Unlock()
		return id.fail(op, syscall.EINVAL, "there is no connection")
	}
	wait := !id.over || id.unread(EventDisconnected)
	err := id.dev.do(func(m *cm.Machine, now int64, out *cm.Batch) error {
		switch id.cmid.State() {
		case cm.StateEstablished, cm.StateDREQRcvd:
			id.failQP()
			return m.Disconnect(now, id.cmid, nil, out)
		case cm.StateDREQSent, cm.StateTimewait, cm.StateIdle:
			id.failQP()
			return nil
		default:
			return id.fail(op, syscall.EINVAL, "the connection is not established; Close takes the request back")
		}
	})
	err = id.because(op, err)
	id.mu.Unlock()
	if err != nil || !wait {
		return err
	}
	return id.complete(c, op)
}

// unread tells whether an event of that type waits in the ID's channel.
func (id *ID) unread(t EventType) bool {
	id.ch.mu.Lock()
	defer id.ch.mu.Unlock()
	for _, ev := range id.ch.queue {
		if ev.owner == id && ev.Type == t {
			return true
		}
	}
	return false
}

// Notify tells of an asynchronous event of the ID's QP (rdma_notify): verbs.EventCommEst, data has come before the end of
// the handshake, establishes the connection. EISCONN means that it was established already, which is no reason to worry.
// EINVAL for other events, or while there is nothing to establish.
func (id *ID) Notify(event verbs.EventType) error {
	const op = "notify"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stConnect, stDisconnect); err != nil {
		return err
	}
	switch {
	case id.cmid == nil || id.qpType == verbs.QPTypeUD:
		return id.fail(op, syscall.EINVAL, "there is no connection")
	case event == verbs.EventPathMig:
		return nil
	case event != verbs.EventCommEst:
		return id.fail(op, syscall.EINVAL, "the event is %v; only %v means something here", event, verbs.EventCommEst)
	}
	return id.because(op, id.dev.do(func(m *cm.Machine, _ int64, out *cm.Batch) error { return m.Notify(id.cmid, out) }))
}
