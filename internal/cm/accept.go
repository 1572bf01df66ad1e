package cm

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// onREQ takes a request for a connection.
func (m *Machine) onREQ(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	r := cmmsg.REQ(msg.Data())
	key := peerKey{cmmsg.GID(back.Dst), r.LocalGUID(), r.LocalID()}
	if old := m.peers[key]; old != nil {
		m.Counters.RxDuplicates.add(cmmsg.KindREQ)
		m.repeatedREQ(now, old, back, msg, out)
		return
	}
	if key.n = r.LocalQPN(); key.n == 0 {
		m.Counters.RxInvalid++
		return
	}
	if old := m.qps[key]; old != nil {
		m.stale(now, old, back, msg, out)
		return
	}
	if !m.hasPKey(back.Src, r.PKey()) {
		m.rejectREQ(back, msg, cmmsg.RejInvalidGID, nil, out)
		return
	}
	l, reason, ari := m.admit(back, r)
	if l == nil {
		if reason == cmmsg.RejInvalidServiceID && m.hold(now, r.ServiceID(), back, msg) {
			return
		}
		m.rejectREQ(back, msg, reason, ari, out)
		return
	}
	// A request for which there is no room is dropped without an answer: the peer repeats it.
	class, ok := m.makeRoom(now, l, back.Dst, msg, out)
	if !ok {
		return
	}
	id := m.newRequest(l, back)
	if id == nil {
		return
	}
	id.state = StateREQRcvd
	id.listener, id.class, id.since, id.undecided = l, class, now, true
	l.undecided[class]++
	id.tid = msg.TID()
	id.readREQ(r)
	id.localPSN = m.newPSN()
	m.addPeer(id)
	m.addQP(id)
	out.Events = append(out.Events, Event{Type: EventREQ, ID: id, Listener: l, Msg: msg})
}

// hasPKey reports whether the port of a local address is in the partition that a request names.
func (m *Machine) hasPKey(local netip.Addr, key uint16) bool {
	return m.cfg.HasPKey == nil || m.cfg.HasPKey(local, key)
}

// newRequest makes the ID of a request, with a place in l's backlog; nil if backlog or table are full.
func (m *Machine) newRequest(l *Listener, back *link.Path) *ID {
	if !l.p.Backlog.enter() {
		m.Counters.BacklogFull++
		return nil
	}
	id := &ID{path: Path{Path: *back}, backlog: l.p.Backlog}
	if !m.enroll(id) {
		m.Counters.TableFull++
		l.p.Backlog.leave()
		return nil
	}
	return id
}

// readREQ stores what the QP, the reply and its repetition need.
func (id *ID) readREQ(r cmmsg.REQ) {
	id.service, id.transport = r.ServiceID(), r.Transport()
	id.remoteGUID, id.remoteID = r.LocalGUID(), r.LocalID()
	id.remoteQPN, id.remotePSN = r.LocalQPN(), r.StartPSN()
	id.respResources, id.initDepth = r.InitiatorDepth(), r.ResponderResources()
	id.retryCount, id.rnrRetry = r.RetryCount(), r.RNRRetry()
	id.maxRetries, id.interval = r.MaxRetries(), peerWait(r.LocalTimeout())

	p := r.Primary()
	id.ackTimeout = p.AckTimeout()
	id.path.PKey, id.path.MTU, id.path.SL, id.path.Rate = r.PKey(), r.MTU(), p.SL(), p.Rate()
	id.path.TClass, id.path.HopLimit, id.path.FlowLabel = p.TClass(), p.HopLimit(), p.FlowLabel()
	id.path.LifeTime = max(p.AckTimeout(), 1) - 1
}

// repeatedREQ answers a REQ that comes again: the peer has no answer yet.
func (m *Machine) repeatedREQ(now int64, id *ID, back *link.Path, msg cmmsg.Msg, out *Batch) {
	switch id.state {
	case StateREQRcvd, StateMRAREQSent:
		m.change(id)
		id.state = StateMRAREQSent
		m.sendMRA(id, cmmsg.AboutREQ, m.cfg.MRATimeout, nil, out)
	case StateREPSent, StateMRAREPRcvd:
		m.resend(id, out)
	case StateTimewait:
		m.rejectREQ(back, msg, cmmsg.RejStale, nil, out)
	case stateAnswered:
		m.answerAgain(now, id, out)
	}
}

// Taken reports that the program has fetched the request: its place in the backlog is free. Accept, Reject, Answer
// and Destroy free it too.
func (m *Machine) Taken(id *ID) { id.leaveBacklog() }

func (id *ID) leaveBacklog() {
	if id.backlog != nil {
		id.backlog.leave()
		id.backlog = nil
	}
}

// AcceptParams is the reply to a request (struct ib_cm_rep_param), seen from the sender.
type AcceptParams struct {
	QPN uint32
	SRQ bool // the QP has a shared receive queue

	FlowControl        bool
	ResponderResources uint8 // READs and atomics that this end takes at a time; more than in Attrs is useless
	InitiatorDepth     uint8 // READs and atomics that this end will have outstanding; not more than in Attrs
	RNRRetry           uint8 // of the peer's QP, 0 to 7; 7 is for ever

	ECE     cmmsg.ECE
	Private []byte // at most 196 bytes
}

// Accept sends a REP and repeats it until an answer comes (ib_send_cm_rep). The QP must be in RTS, as data may come
// before the RTU. The result is EventEstablished, EventREJ, EventDREQ or EventREPTimeout.
func (m *Machine) Accept(now int64, id *ID, p *AcceptParams, out *Batch) error {
	const op = "accept"
	if err := id.ready(op, cmmsg.KindREP, p.Private, StateREQRcvd, StateMRAREQSent); err != nil {
		return err
	}
	switch {
	case p.QPN == 0 || p.QPN > 0xFFFFFF:
		return invalid(op, "QPN %#x: must be 1 to 0xffffff", p.QPN)
	case p.RNRRetry > 7:
		return invalid(op, "RNR retry count %d: must be 0 to 7", p.RNRRetry)
	}
	id.leaveBacklog()
	id.state = StateREPSent
	id.localQPN = p.QPN
	id.respResources, id.initDepth = p.ResponderResources, p.InitiatorDepth

	msg := m.compose(out, &id.path.Path, cmmsg.KindREP, id.tid)
	cmmsg.REP(msg.Data()).Put(m.reply(id, p))
	msg.SetECE(p.ECE)
	msg.SetPrivate(p.Private)
	interval, retries := min(id.interval, maxREPInterval), id.maxRetries
	if id.class == unknownSource {
		retries = min(retries, unknownREPs)
	}
	m.keep(now, id, msg, interval, retries)
	m.hasten(now, id)
	m.enterHalfOpen(now, id)
	return nil
}

// reply is the REP of id.
func (m *Machine) reply(id *ID, p *AcceptParams) cmmsg.REPFields {
	f := cmmsg.REPFields{
		LocalID: id.localID, RemoteID: id.remoteID, LocalQPN: p.QPN, StartPSN: id.localPSN,
		ResponderResources: p.ResponderResources,
		InitiatorDepth:     p.InitiatorDepth, TargetAckDelay: m.cfg.AckDelay, FlowControl: p.FlowControl,
		RNRRetry: p.RNRRetry,
		SRQ:      p.SRQ, LocalGUID: m.cfg.GUID,
	}
	if id.transport == cmmsg.XRC { // the target's QP is an end-to-end context, and a responder only
		f.LocalQPN, f.LocalEECN = 0, p.QPN
		f.InitiatorDepth, f.FlowControl, f.SRQ = 0, false, true
	}
	return f
}

// onRTU takes the end of the handshake.
func (m *Machine) onRTU(back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.find(back, msg)
	switch {
	case id == nil:
		if m.wasEvicted(msg.RemoteID()) { // the peer believes that it is connected
			m.rejectEvicted(back, msg, out)
		}
	case id.state.is(StateREPSent, StateMRAREPRcvd):
		m.learnSource(id)
		m.established(id, msg, out)
	default:
		m.Counters.RxDuplicates.add(cmmsg.KindRTU)
	}
}

func (m *Machine) established(id *ID, msg cmmsg.Msg, out *Batch) {
	m.stopWaiting(id)
	id.state = StateEstablished
	out.report(EventEstablished, id, msg)
	if id.peerDied {
		m.Counters.Deaths++
		m.leaving(id, unsentDREQ(id), out)
	}
}
