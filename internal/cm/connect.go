package cm

import (
	"bytes"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// ConnectParams is a request for a connection (struct ib_cm_req_param), seen from the sender.
type ConnectParams struct {
	Service   cmmsg.ServiceID
	Path      Path
	Transport cmmsg.Transport
	QPN       uint32
	SRQ       bool // the QP has a shared receive queue

	FlowControl        bool
	ResponderResources uint8 // READs and atomics that this end takes at a time
	InitiatorDepth     uint8 // READs and atomics that this end will have outstanding
	RetryCount         uint8 // of both QPs, 0 to 7
	RNRRetry           uint8 // of the peer's QP, 0 to 7; 7 means no limit

	RemoteTimeout uint8 // time for the peer's answer, a time code; 0 means DefaultTimeout
	LocalTimeout  uint8 // time for this end's answer, a time code; 0 means DefaultTimeout
	MaxRetries    uint8 // repetitions of a message, 1 to 15; 0 means DefaultMaxRetries

	ECE     cmmsg.ECE
	Private []byte // at most 92 bytes, with the cmmsg.IPHeader if there is to be one
}

func (p *ConnectParams) setDefaults() {
	p.Path.setDefaults()
	if p.RemoteTimeout == 0 {
		p.RemoteTimeout = DefaultTimeout
	}
	if p.LocalTimeout == 0 {
		p.LocalTimeout = DefaultTimeout
	}
	if p.MaxRetries == 0 {
		p.MaxRetries = DefaultMaxRetries
	}
}

func (p *ConnectParams) check(op string) error {
	switch {
	case p.QPN == 0 || p.QPN > 0xFFFFFF:
		return invalid(op, "QPN %#x: must be 1 to 0xffffff", p.QPN)
	case p.Path.MTU < 1 || p.Path.MTU > 5:
		return invalid(op, "path MTU code %d: must be 1 (256 bytes) to 5 (4096 bytes)", p.Path.MTU)
	case p.RetryCount > 7 || p.RNRRetry > 7:
		return invalid(op, "retry count %d, RNR retry count %d, both must be 0 to 7", p.RetryCount, p.RNRRetry)
	case p.RemoteTimeout > 31 || p.LocalTimeout > 31 || p.MaxRetries > 15:
		return invalid(op, "CM timeouts %d and %d: must be 0 to 31; %d retries: must be 0 to 15", p.RemoteTimeout,
			p.LocalTimeout, p.MaxRetries)
	case p.Transport != cmmsg.RC && p.Transport != cmmsg.UC && p.Transport != cmmsg.XRC:
		return invalid(op, "%v: must be RC, UC or XRC", p.Transport)
	}
	return p.Path.check(op)
}

func (p *Path) check(op string) error {
	switch {
	case !p.Src.IsValid() || !p.Dst.IsValid() || p.Src.Unmap().Is4() != p.Dst.Unmap().Is4():
		return invalid(op, "path from %v to %v: must be two addresses of one family", p.Src, p.Dst)
	case p.LifeTime > 31 || p.SL > 15 || p.Rate > 63 || p.FlowLabel > 0xFFFFF:
		return invalid(op, "packet life time %d (0 to 31), SL %d (0 to 15), rate %d (0 to 63), flow label %#x (20 bits)",
			p.LifeTime, p.SL, p.Rate, p.FlowLabel)
	}
	return nil
}

// Connect sends a REQ from a new ID and repeats it until an answer comes (ib_send_cm_req). The result is EventREP,
// EventREJ or EventREQTimeout.
func (m *Machine) Connect(now int64, id *ID, p *ConnectParams, out *Batch) error {
	const op = "connect"
	if err := id.fresh(op, cmmsg.KindREQ, p.Private); err != nil {
		return err
	}
	q := *p
	q.setDefaults()
	if err := q.check(op); err != nil {
		return err
	}
	if !m.enroll(id) {
		return tableFull(op, m.cfg.MaxIDs)
	}
	id.active, id.state = true, StateREQSent
	id.path, id.service, id.transport = q.Path, q.Service, q.Transport
	id.localQPN, id.localPSN = q.QPN, m.newPSN()
	id.respResources, id.initDepth, id.retryCount = q.ResponderResources, q.InitiatorDepth, q.RetryCount
	id.ackTimeout = AckTimeout(m.cfg.AckDelay, q.Path.LifeTime)
	id.maxRetries, id.tid = q.MaxRetries, m.ownTID(id)
	id.interval = 2*wait(q.Path.LifeTime) + wait(q.RemoteTimeout)

	msg := m.compose(out, &id.path.Path, cmmsg.KindREQ, id.tid)
	cmmsg.REQ(msg.Data()).Put(m.request(id, &q))
	msg.SetECE(q.ECE)
	msg.SetPrivate(q.Private)
	m.keep(now, id, msg, id.interval, id.maxRetries)
	m.hasten(now, id)
	return nil
}

// request is the REQ of id.
func (m *Machine) request(id *ID, p *ConnectParams) cmmsg.REQFields {
	return cmmsg.REQFields{
		LocalID: id.localID, ServiceID: p.Service, LocalGUID: m.cfg.GUID, LocalQPN: p.QPN,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, RemoteTimeout: p.RemoteTimeout,
		LocalTimeout: p.LocalTimeout, Transport: p.Transport, FlowControl: p.FlowControl, SRQ: p.SRQ, StartPSN: id.localPSN,
		RetryCount: p.RetryCount, RNRRetry: p.RNRRetry, PKey: p.Path.PKey, MTU: p.Path.MTU, MaxRetries: p.MaxRetries,
		Primary: p.Path.fields(id.ackTimeout),
	}
}

// onREP takes the reply to a REQ.
func (m *Machine) onREP(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.ids[msg.RemoteID()]
	switch {
	case id == nil || !id.active:
		m.Counters.RxUnmatched++
		m.rejectUnknown(back, msg, out)
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
	case id.state.is(StateREQSent, StateMRAREQRcvd):
		m.takeREP(now, id, back, msg, out)
	case id.remoteID != msg.LocalID():
		m.Counters.RxUnmatched++
		m.rejectUnknown(back, msg, out)
	default:
		m.Counters.RxDuplicates.add(cmmsg.KindREP)
		m.repeatedREP(id, out)
	}
}

// takeREP takes the first REP.
func (m *Machine) takeREP(now int64, id *ID, back *link.Path, msg cmmsg.Msg, out *Batch) {
	r := cmmsg.REP(msg.Data())
	qpn := r.LocalQPN()
	if id.transport == cmmsg.XRC {
		qpn = r.LocalEECN()
	}
	if qpn == 0 {
		m.Counters.RxInvalid++
		return
	}
	id.remoteGUID = r.LocalGUID()
	if m.peers[id.peerKey(r.LocalID())] != nil {
		m.Counters.RxInvalid++ // the peer has a connection with this ID already
		return
	}
	if old := m.qps[id.peerKey(qpn)]; old != nil {
		m.stale(now, old, back, msg, out)
		return
	}
	m.stopWaiting(id)
	id.state = StateREPRcvd
	id.remoteID, id.remoteQPN, id.remotePSN = r.LocalID(), qpn, r.StartPSN()
	id.respResources, id.initDepth = r.InitiatorDepth(), r.ResponderResources()
	id.rnrRetry = r.RNRRetry()
	id.ackTimeout = AckTimeout(r.TargetAckDelay(), id.path.LifeTime)
	m.addPeer(id)
	m.addQP(id)
	m.learnSource(id)
	out.report(EventREP, id, msg)
}

func (m *Machine) addPeer(id *ID) {
	id.knownPeer = true
	m.peers[id.peerKey(id.remoteID)] = id
	m.guard.peer(id.remoteGUID, id.remoteID).Add(1)
}

func (m *Machine) addQP(id *ID) {
	id.knownQP = true
	m.qps[id.peerKey(id.remoteQPN)] = id
}

// repeatedREP answers a REP that comes again: the peer has not got the RTU, or the program takes long.
func (m *Machine) repeatedREP(id *ID, out *Batch) {
	switch id.state {
	case StateEstablished:
		m.sendRTU(id, out)
	case StateREPRcvd, StateMRAREPSent:
		id.state = StateMRAREPSent
		m.sendMRA(id, cmmsg.AboutREP, m.cfg.MRATimeout, nil, out)
	}
}

// Establish sends the RTU that completes a connection (ib_send_cm_rtu). The QP must be in RTS.
func (m *Machine) Establish(id *ID, private []byte, out *Batch) error {
	if err := id.ready("establish", cmmsg.KindRTU, private, StateREPRcvd, StateMRAREPSent); err != nil {
		return err
	}
	m.change(id)
	id.state = StateEstablished
	id.answer = bytes.Clone(private)
	m.sendRTU(id, out)
	return nil
}

func (m *Machine) sendRTU(id *ID, out *Batch) {
	msg := m.compose(out, &id.path.Path, cmmsg.KindRTU, id.tid)
	cmmsg.RTU(msg.Data()).Put(id.localID, id.remoteID)
	msg.SetPrivate(id.answer)
}

// Notify establishes a connection whose RTU has not come: data has come, which the QP's COMM_EST event reports
// (ib_cm_notify). EISCONN if the connection is established already, which the caller can ignore.
func (m *Machine) Notify(id *ID, out *Batch) error {
	if id.state == StateEstablished && !id.destroyed {
		return &Error{Op: "notify", Detail: "the connection is established", Errno: syscall.EISCONN}
	}
	if id.destroyed || !id.state.is(StateREPSent, StateMRAREPRcvd) {
		return wrongState("notify", id, StateREPSent, StateMRAREPRcvd)
	}
	m.established(id, nil, out)
	return nil
}
