package rdmacm

import (
	"context"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/ucma"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// The active side of a connection, in the order of what happens: Connect sends the request, onReply takes the REP and
// sends the RTU, Establish sends the RTU for a program that connects its QP by itself. onAnswer takes the answer to a
// datagram look-up.

// Connect asks the peer for a connection, or a datagram service for its QP (rdma_connect). The route has been
// resolved. p may be nil if the ID has a QP: 7 retries, READs and atomics as the device can, no private data.
//
// The result is EventEstablished; EventConnectResponse if the ID has no QP; EventRejected, with the peer's private
// data; EventUnreachable; or EventConnectError. EINVAL if the route is not resolved, if the port has left the partition
// of the route, or for bad parameters; nothing has changed then.
func (id *ID) Connect(ctx context.Context, p *ConnParam) error {
	const op = "connect"
	id.mu.Lock()
	if err := id.connect(op, p); err != nil {
		id.mu.Unlock()
		return err
	}
	id.mu.Unlock()
	return id.complete(ctx, op)
}

// connectDefaults are the numbers that Connect takes for those that are 0.
var connectDefaults = ConnParam{
	RetryCount: 7, RNRRetryCount: 7, ResponderResources: MaxRespRes, InitiatorDepth: MaxInitDepth,
}

// connect checks the parameters and sends the request.
//
// +checklocks:id.mu
func (id *ID) connect(op string, p *ConnParam) error {
	if err := id.in(op, stRouteResolved); err != nil {
		return err
	}
	if err := id.checkParam(op, p); err != nil {
		return err
	}
	if p == nil {
		p = &ConnParam{}
	}
	p = p.orDefaults(&connectDefaults)
	switch {
	case id.dev.streams:
		return id.connectStream(op, p)
	case id.dev.kernel:
		return id.connectByKernel(op, p)
	}
	if _, err := id.qpPKeyIndex(op); err != nil {
		return err
	}
	private, err := id.requestData(op, p)
	if err != nil {
		return err
	}
	var c *cm.ID
	if id.qpType == verbs.QPTypeUD {
		c, err = id.dev.cm.lookup(id, &cm.LookupParams{
			Service: id.ps.service(id.remote.Port()), Path: id.cmRoute(), Private: private,
		})
	} else {
		asked := id.request(p, private)
		if c, err = id.dev.cm.connect(id, asked); id.pathMTU == 0 {
			id.asked = asked
		}
	}
	if err != nil {
		return id.because(op, err)
	}
	id.cmid, id.state = c, stConnect
	id.step(inConnect)
	id.begin(false)
	id.watchReach(c)
	return nil
}

// request is the machine's form of a request for a connection.
//
// +checklocks:id.mu
func (id *ID) request(p *ConnParam, private []byte) *cm.ConnectParams {
	id.respRes = least(p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	id.initDepth = least(p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	qpn, srq := id.ownQP(p)
	return &cm.ConnectParams{
		Service: id.ps.service(id.remote.Port()), Path: id.cmRoute(), Transport: transportOf(id.qpType), QPN: qpn, SRQ: srq,
		FlowControl: p.FlowControl, ResponderResources: id.respRes, InitiatorDepth: id.initDepth,
		RetryCount: min(7, p.RetryCount), RNRRetry: min(7, p.RNRRetryCount),
		ECE: cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}, Private: private,
	}
}

// onReply takes the peer's REP: it moves the QP to RTS and sends the RTU. Without a QP the program does both.
//
// +checklocks:id.mu
func (id *ID) onReply(msg cmmsg.Msg) {
	r := cmmsg.REP(msg.Data())
	id.endWatch()
	id.learn()
	id.peerECE = ECE{VendorID: msg.ECE().Vendor, Options: msg.ECE().Options}
	ev := &Event{Type: EventEstablished, Conn: id.connParam(r.Private()), ECE: id.peerECE}
	ev.Conn.FlowControl, ev.Conn.RNRRetryCount, ev.Conn.SRQ = r.FlowControl(), r.RNRRetry(), r.SRQ()
	if id.qp == nil {
		ev.Type = EventConnectResponse
		id.report(inResponse, ev)
		return
	}
	err := id.connectQP()
	if err == nil {
		err = id.dev.cm.establish(id.cmid)
	}
	if err != nil {
		id.failQP("the connection could not be made")
		_ = id.dev.cm.reject(id.cmid, cmmsg.RejConsumer, nil)
		id.report(inBroken, &Event{Type: EventConnectError, Status: -int(errnoOf(err)), cause: err})
		return
	}
	id.report(inReply, ev)
}

// Establish completes the connection of an ID without QP, after EventConnectResponse (rdma_establish): the peer gets
// its EventEstablished. The program has moved its QP to RTS. EINVAL if the ID has a QP, or has got no response.
func (id *ID) Establish() error {
	const op = "establish"
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	if id.qp == nil && id.dev.kernel && id.conn == connResponded {
		err := id.byKernel.Accept(id.kernelID, id.kernelUID, nil, ucma.ECE{})
		if err == nil {
			id.step(inEstablish)
		}
		return id.because(op, err)
	}
	if id.qp != nil || id.cmid == nil {
		return id.fail(op, syscall.EINVAL, "must be an ID without QP after CONNECT_RESPONSE; with a QP, Connect does it")
	}
	if err := id.dev.cm.establish(id.cmid); err != nil {
		return id.because(op, err)
	}
	id.step(inEstablish)
	return nil
}

// onAnswer takes the answer to a datagram look-up.
//
// +checklocks:id.mu
func (id *ID) onAnswer(msg cmmsg.Msg) {
	r := cmmsg.SIDRREP(msg.Data())
	id.peerECE = ECE{VendorID: msg.ECE().Vendor, Options: msg.ECE().Options}
	switch {
	case r.Status() != cmmsg.SIDRSuccess:
		id.report(inRejected, &Event{Type: EventUnreachable, Status: int(r.Status()), UD: UDParam{PrivateData: r.Private()}})
	case r.QKey() == 0 || id.qp != nil && r.QKey() != UDPQKey:
		id.report(inRejected, &Event{Type: EventAddrError, Status: -int(syscall.EINVAL)})
	default:
		id.report(inReply, &Event{Type: EventEstablished, ECE: id.peerECE, UD: UDParam{
			PrivateData: r.Private(), AHAttr: id.ahAttr(id.path.DGID), QPNum: r.QPN(), QKey: r.QKey(),
		}})
	}
}

// onRejected takes a REJ, of either side's peer.
//
// +checklocks:id.mu
func (id *ID) onRejected(msg cmmsg.Msg) {
	r := cmmsg.REJ(msg.Data())
	if r.Reason() == cmmsg.RejInvalidMTU && id.askForLess(r) {
		return
	}
	id.report(inRejected, &Event{
		Type: EventRejected, Status: int(r.Reason()), Conn: ConnParam{PrivateData: r.Private()}, cause: id.refusedMTU(r),
	})
}

// askForLess asks again with the path MTU that the peer's REJ names, or with the next smaller one if it names none. It
// reports whether it did: the program has not fixed the path MTU, and there is a smaller one.
//
// +checklocks:id.mu
func (id *ID) askForLess(r cmmsg.REJ) bool {
	if id.conn != connRequesting || id.asked == nil {
		return false
	}
	less := id.asked.Path.MTU - 1
	if m := r.MTU(); m != 0 {
		less = min(less, m)
	}
	if verbs.MTU(less) < verbs.MTU256 {
		return false
	}
	id.asked.Path.MTU = less
	c, err := id.dev.cm.connect(id, id.asked)
	if err != nil {
		return false
	}
	id.cmid, id.path.MTU = c, verbs.MTU(less)
	return true
}

// refusedMTU is the cause of a REJ because of the path MTU; nil for other reasons.
//
// +checklocks:id.mu
func (id *ID) refusedMTU(r cmmsg.REJ) error {
	m := verbs.MTU(r.MTU())
	if m == 0 {
		return nil
	}
	return fmt.Errorf("path MTU %v: must be at most the peer's %v", id.path.MTU, m)
}

// checkParam checks the parameters of Connect and Accept.
//
// +checklocks:id.mu
func (id *ID) checkParam(op string, p *ConnParam) error {
	switch {
	case p == nil && id.qp == nil && id.qpType != verbs.QPTypeUD:
		return id.fail(op, syscall.EINVAL, "no parameters: must have a QP number, as the ID has no QP")
	case p == nil || id.ps != PSTCP:
		return nil
	case p.ResponderResources < Zero && int(p.ResponderResources) > id.dev.attr.MaxQPRdAtom:
		return id.fail(op, syscall.EINVAL, "responder resources %d: must be 0 to %d, MaxRespRes or Zero",
			p.ResponderResources, id.dev.attr.MaxQPRdAtom)
	case p.InitiatorDepth < Zero && int(p.InitiatorDepth) > id.dev.attr.MaxQPInitRdAtom:
		return id.fail(op, syscall.EINVAL, "initiator depth %d: must be 0 to %d, MaxInitDepth or Zero",
			p.InitiatorDepth, id.dev.attr.MaxQPInitRdAtom)
	}
	return nil
}

// checkPrivate checks the length of private data.
//
// +checklocks:id.mu
func (id *ID) checkPrivate(op string, n, limit int) error {
	if n > limit {
		return id.fail(op, syscall.EINVAL, "%d bytes of private data: must be 0 to %d", n, limit)
	}
	return nil
}

// requestData is the private data of a request: the addresses, the prefix from GetAddrInfo, and the program's data.
//
// +checklocks:id.mu
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
//
// +checklocks:id.mu
func (id *ID) cmRoute() cm.Path {
	p := &id.path
	return cm.Path{
		Path: link.Path{
			Src: id.local.Addr(), Dst: id.remote.Addr(), TClass: p.TrafficClass, HopLimit: p.HopLimit, FlowLabel: p.FlowLabel,
			PKey: p.PKey,
		},
		MTU: uint8(p.MTU), SL: p.SL, Rate: p.Rate, LifeTime: p.PacketLifeTime,
	}
}

// ownQP is the QP of this side that the peer connects to.
//
// +checklocks:id.mu
func (id *ID) ownQP(p *ConnParam) (qpn uint32, srq bool) {
	if id.qp != nil {
		return id.qp.QPN(), id.qp.SRQ() != nil
	}
	return p.QPNum, p.SRQ
}

// transportOf is the transport of a type of QP.
func transportOf(t verbs.QPType) cmmsg.Transport {
	switch t {
	case verbs.QPTypeUC:
		return cmmsg.UC
	case verbs.QPTypeXRCSend, verbs.QPTypeXRCRecv:
		return cmmsg.XRC
	}
	return cmmsg.RC
}
