package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/verbs"
)

// The passive side of a connection, in the order of what happens: onRequest makes an ID of a request, onTaken frees
// its place in the backlog, Accept or Reject answers it, onEstablished takes the RTU.

// onRequest makes a new ID of a request and reports it to the listener's channel.
func (m *manager) onRequest(ev *cm.Event) {
	l := ev.Listener.Context.(*ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	id := l.newChild()
	if id == nil {
		m.destroy(ev.ID)
		return
	}
	id.mu.Lock()
	if id.state == stDestroying { // the channel was closed just now
		id.mu.Unlock()
		m.destroy(ev.ID)
		return
	}
	id.inherit(l, m.dev, ev.ID)
	out := id.readRequest(ev)
	out.ListenID = l
	stray := id.sgid == noPlace
	id.mu.Unlock()
	if stray || !l.push(out) { // the address or the channel has gone meanwhile
		id.destroyAll()
	}
}

// newChild makes the ID of a request; nil if the ID does not listen any more, or its channel is closed.
//
// +checklocks:id.mu
func (id *ID) newChild() *ID {
	if id.state != stListen {
		return nil
	}
	ch := id.ch
	if id.sync {
		ch = nil
	}
	return id.host.newID(ch, id.ps, id.Context)
}

// inherit takes over the options of the listener and the machine's ID of the request.
//
// +checklocks:id.mu
// +checklocks:l.mu
func (id *ID) inherit(l *ID, d *device, c *cm.ID) {
	id.qpType, id.tos = l.qpType, l.tos
	id.ackTimeout, id.ackTimeoutSet = l.ackTimeout, l.ackTimeoutSet
	id.keepAlive = l.keepAlive
	id.zone = l.zone
	l.host.mu.Lock()
	id.bindDevice(d, noPlace)
	l.host.mu.Unlock()
	id.cmid, id.state = c, stConnect
	d.cm.adopt(c, id)
	id.step(inRequest)
	id.begin(true)
}

// readRequest takes addresses and parameters from a request, and returns its event.
//
// +checklocks:id.mu
func (id *ID) readRequest(ev *cm.Event) *Event {
	id.learn()
	id.peerECE = ECE{VendorID: ev.Msg.ECE().Vendor, Options: ev.Msg.ECE().Options}
	private := id.readAddrs(ev.Msg)
	id.sgid = id.dev.find(id.cmPath.Src)
	out := &Event{Type: EventConnectRequest, ID: id, ECE: id.peerECE}
	if ev.Type == cm.EventSIDRREQ {
		out.UD, out.Conn = UDParam{PrivateData: private}, ConnParam{PrivateData: private}
		return out
	}
	r := cmmsg.REQ(ev.Msg.Data())
	out.Conn = id.connParam(private)
	out.Conn.FlowControl, out.Conn.SRQ = r.FlowControl(), r.SRQ()
	out.Conn.RetryCount, out.Conn.RNRRetryCount = r.RetryCount(), r.RNRRetry()
	return out
}

// readAddrs takes the addresses from a request, and returns the program's part of its private data.
//
// +checklocks:id.mu
func (id *ID) readAddrs(msg cmmsg.Msg) (private []byte) {
	private = msg.Private()
	_, port, _ := id.cmid.Service().Port()
	h := cmmsg.IPHeader(private[:cmmsg.IPHeaderLen])
	p := &id.cmPath
	if h.Dst().IsValid() { // the machine has checked the rest of the header
		id.local, id.remote = netip.AddrPortFrom(h.Dst(), port), netip.AddrPortFrom(h.Src(), h.SrcPort())
		private = private[cmmsg.IPHeaderLen:]
	} else { // a request between GIDs (AF_IB) has no port but that of the service
		id.local, id.remote, id.afIB = netip.AddrPortFrom(p.Src, port), netip.AddrPortFrom(p.Dst, 0), true
	}
	id.path = PathRec{
		SGID: verbs.GIDFromAddr(p.Src), DGID: verbs.GIDFromAddr(p.Dst), FlowLabel: p.FlowLabel, HopLimit: p.HopLimit,
		TrafficClass: p.TClass, Reversible: true, NumbPath: 1, PKey: p.PKey, SL: p.SL, MTU: verbs.MTU(p.MTU), Rate: p.Rate,
		PacketLifeTime: p.LifeTime,
	}
	id.haveRoute = true
	if id.zone == "" && lookup.NeedsZone(id.local.Addr()) {
		id.zone = id.dev.netDev(id.dev.find(id.local.Addr()))
	}
	return private
}

// onTaken frees the place that the request had in its listener's backlog: the program has retrieved its event.
func (id *ID) onTaken() {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.takenStream()
	if id.cmid != nil && id.state != stDestroying {
		id.dev.cm.taken(id.cmid)
	}
}

// Accept accepts a request (rdma_accept), called for the new ID of EventConnectRequest. The ID's QP goes to RTS
// first. With p nil the request's own parameters are used, as far as the device can. EventEstablished follows when
// the peer has acknowledged; a synchronous ID waits for it. The answer to a datagram look-up has no such event.
//
// EINVAL for bad parameters, or if the peer has withdrawn the request. If the QP cannot be connected, the request is
// refused.
func (id *ID) Accept(ctx context.Context, p *ConnParam) error {
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
	return id.complete(ctx, op)
}

// accept checks the parameters and answers the request.
//
// +checklocks:id.mu
func (id *ID) accept(op string, p *ConnParam) error {
	streams, kernel := id.dev != nil && id.dev.streams, id.dev != nil && id.dev.kernel
	if err := id.undecided(op); err != nil && !streams && !kernel {
		return err
	}
	if err := id.checkParam(op, p); err != nil {
		return err
	}
	switch {
	case streams:
		return id.acceptStream(op, p)
	case kernel:
		return id.acceptByKernel(op, p)
	}
	if id.qpType == verbs.QPTypeUD {
		return id.acceptLookup(op, p)
	}
	a, err := id.reply(op, p)
	if err != nil {
		return err
	}
	if id.qp != nil {
		err = id.connectQP()
	}
	if err == nil {
		err = id.answered(op, id.dev.cm.accept(id.cmid, a))
	}
	if err != nil {
		id.failQP("the request could not be accepted")
		_ = id.dev.cm.reject(id.cmid, cmmsg.RejConsumer, nil)
		id.step(inRefuse)
		return id.because(op, err)
	}
	id.step(inAccept)
	return nil
}

// reply is the machine's form of the answer to a request.
//
// +checklocks:id.mu
func (id *ID) reply(op string, p *ConnParam) (*cm.AcceptParams, error) {
	a := &cm.AcceptParams{ResponderResources: id.respRes, InitiatorDepth: id.initDepth, RNRRetry: id.attrs.RNRRetry}
	if p == nil {
		p = &ConnParam{}
	} else {
		if err := id.checkPrivate(op, len(p.PrivateData), cmmsg.KindREP.PrivateLen()); err != nil {
			return nil, err
		}
		p = id.orAsked(p, a.RNRRetry)
		a.ResponderResources, a.InitiatorDepth = p.ResponderResources, p.InitiatorDepth
		a.RNRRetry, a.FlowControl, a.Private = min(7, p.RNRRetryCount), p.FlowControl, p.PrivateData
	}
	a.QPN, a.SRQ = id.ownQP(p)
	a.ECE = cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}
	id.respRes, id.initDepth = a.ResponderResources, a.InitiatorDepth
	return a, nil
}

// orAsked replaces the numbers of Accept that stand for a default, and the maximum: both are what the request asks
// for, as far as the device can, since the peer's QP takes no more.
//
// +checklocks:id.mu
func (id *ID) orAsked(p *ConnParam, rnrRetry uint8) *ConnParam {
	q := p.orDefaults(&ConnParam{ResponderResources: MaxRespRes, InitiatorDepth: MaxInitDepth, RNRRetryCount: rnrRetry})
	if q.ResponderResources == MaxRespRes {
		q.ResponderResources = id.respRes
	}
	if q.InitiatorDepth == MaxInitDepth {
		q.InitiatorDepth = id.initDepth
	}
	return q
}

// acceptLookup sends the peer the QP that serves it.
//
// +checklocks:id.mu
func (id *ID) acceptLookup(op string, p *ConnParam) error {
	a := cm.AnswerParams{QKey: UDPQKey, ECE: cmmsg.ECE{Vendor: id.ece.VendorID, Options: id.ece.Options}}
	if p == nil {
		p = &ConnParam{}
	}
	if err := id.checkPrivate(op, len(p.PrivateData), cmmsg.KindSIDRREP.PrivateLen()); err != nil {
		return err
	}
	a.Private = p.PrivateData
	a.QPN, _ = id.ownQP(p)
	if err := id.answered(op, id.dev.cm.answer(id.cmid, &a)); err != nil {
		return id.because(op, err)
	}
	id.step(inAccept)
	return nil
}

// onEstablished takes the RTU, or data that came instead of it (Notify).
//
// +checklocks:id.mu
func (id *ID) onEstablished() {
	id.report(inEstablished, &Event{Type: EventEstablished, Conn: id.connParam(nil)})
}

// Reject refuses a request (rdma_reject), called for the new ID of EventConnectRequest, which must be closed
// afterwards. The peer gets EventRejected with reason 28 and the private data, at most 148 bytes; of a datagram
// look-up it gets EventUnreachable with status 2, and 136 bytes. EINVAL for more, or if no request waits.
func (id *ID) Reject(private []byte) error { return id.reject("reject", cmmsg.RejConsumer, private) }

// RejectECE is Reject for the reason that the peer's ECE does not suit (rdma_reject_ece), reason 35.
func (id *ID) RejectECE(private []byte) error {
	return id.reject("reject_ece", cmmsg.RejVendorNotSupported, private)
}

// reject refuses a request.
func (id *ID) reject(op string, reason cmmsg.Reason, private []byte) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	switch {
	case id.dev != nil && id.dev.streams:
		return id.rejectStream(op, private)
	case id.dev != nil && id.dev.kernel:
		return id.rejectByKernel(op, reason, private)
	}
	if id.cmid == nil {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: errNoRequest}
	}
	kind := cmmsg.KindREJ
	if id.qpType == verbs.QPTypeUD {
		kind = cmmsg.KindSIDRREP
	}
	if err := id.checkPrivate(op, len(private), kind.PrivateLen()); err != nil {
		return err
	}
	var err error
	if id.qpType == verbs.QPTypeUD {
		err = id.dev.cm.answer(id.cmid, &cm.AnswerParams{Status: cmmsg.SIDRReject, Private: private})
	} else {
		err = id.dev.cm.reject(id.cmid, reason, private)
	}
	if err != nil {
		return id.because(op, err)
	}
	id.step(inRefuse)
	return nil
}

// errNoRequest: the request was answered, or the peer has withdrawn it.
var errNoRequest = errors.New("no request waits for an answer")

// undecided checks that a request waits for an answer.
//
// +checklocks:id.mu
func (id *ID) undecided(op string) error {
	if err := id.in(op, stConnect); err != nil {
		return err
	}
	var s cm.State
	if id.cmid != nil {
		s = id.dev.cm.state(id.cmid)
	}
	switch s {
	case cm.StateREQRcvd, cm.StateMRAREQSent, cm.StateSIDRREQRcvd:
		return nil
	}
	return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Detail: "the connection is " + s.String(),
		Err: errNoRequest}
}

// answered is the error of an answer: errNoRequest if the peer withdrew the request since undecided was called.
//
// +checklocks:id.mu
func (id *ID) answered(op string, err error) error {
	if err == nil {
		return nil
	}
	if withdrawn := id.undecided(op); withdrawn != nil {
		return withdrawn
	}
	return err
}

// SetLocalECE sets this side's abilities, which Connect or Accept sends to the peer (rdma_set_local_ece). EINVAL for a
// vendor ID of more than 24 bits.
func (id *ID) SetLocalECE(e ECE) error {
	const op = "set_local_ece"
	id.mu.Lock()
	defer id.mu.Unlock()
	switch {
	case id.state == stDestroying:
		return id.errClosed(op)
	case e.VendorID > 0xFFFFFF:
		return id.fail(op, syscall.EINVAL, "vendor ID %#x: must be 0 to 0xffffff", e.VendorID)
	}
	id.ece = e
	return nil
}

// RemoteECE is the peer's abilities, zero if it sent none (rdma_get_remote_ece).
func (id *ID) RemoteECE() ECE {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.peerECE
}
