package cm

import (
	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// LookupParams is a look-up of the QP that serves datagrams (struct ib_cm_sidr_req_param).
type LookupParams struct {
	Service    cmmsg.ServiceID
	Path       Path
	Timeout    uint8  // time for the peer's answer, a time code; 0 means DefaultTimeout
	MaxRetries uint8  // 1 to 15; 0 means DefaultMaxRetries
	Private    []byte // at most 216 bytes, with the cmmsg.IPHeader if there is to be one
}

// Lookup sends a SIDR_REQ from a new ID and repeats it until an answer comes (ib_send_cm_sidr_req). The result is
// EventSIDRREP or EventSIDRTimeout.
func (m *Machine) Lookup(now int64, id *ID, p *LookupParams, out *Batch) error {
	const op = "lookup"
	if err := id.fresh(op, cmmsg.KindSIDRREQ, p.Private); err != nil {
		return err
	}
	c := ConnectParams{Path: p.Path, RemoteTimeout: p.Timeout, MaxRetries: p.MaxRetries}
	c.setDefaults()
	if err := c.Path.check(op); err != nil {
		return err
	}
	if c.RemoteTimeout > 31 || c.MaxRetries > 15 {
		return invalid(op, "CM timeout %d: must be 0 to 31; %d retries: must be 0 to 15", c.RemoteTimeout, c.MaxRetries)
	}
	if !m.enroll(id) {
		return tableFull(op, m.cfg.MaxIDs)
	}
	id.active, id.state = true, StateSIDRREQSent
	id.path, id.service, id.tid = c.Path, p.Service, m.ownTID(id)
	msg := m.compose(out, &id.path.Path, cmmsg.KindSIDRREQ, id.tid)
	cmmsg.SIDRREQ(msg.Data()).Put(id.localID, c.Path.PKey, p.Service)
	msg.SetPrivate(p.Private)
	m.keep(now, id, msg, wait(c.RemoteTimeout), c.MaxRetries)
	m.hasten(now, id)
	return nil
}

// onSIDRREP takes the answer to a look-up.
func (m *Machine) onSIDRREP(back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.ids[msg.LocalID()]
	switch {
	case id == nil:
		m.Counters.RxUnmatched++
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
	case id.state != StateSIDRREQSent:
		m.Counters.RxUnmatched++
	default:
		m.retire(id)
		out.report(EventSIDRREP, id, msg)
	}
}

// onSIDRREQ takes a look-up.
func (m *Machine) onSIDRREQ(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	r := cmmsg.SIDRREQ(msg.Data())
	key := sidrKey{cmmsg.GID(back.Dst), r.RequestID()}
	if old := m.sidr[key]; old != nil {
		m.Counters.RxDuplicates.add(cmmsg.KindSIDRREQ)
		m.answerAgain(now, old, out)
		return
	}
	listens := false
	for _, l := range m.listeners[r.ServiceID()] {
		listens = listens || l.p.UD
	}
	l := m.match(r.ServiceID(), true, 0, back, r.Private())
	if l != nil && !m.hasPKey(back.Src, r.PKey()) {
		l, listens = nil, true
	}
	if l == nil {
		if listens {
			m.rejectLookup(back, msg, cmmsg.SIDRReject, out)
		} else if !m.hold(now, r.ServiceID(), back, msg) {
			m.rejectLookup(back, msg, cmmsg.SIDRUnsupported, out)
		}
		return
	}
	if !m.takesLookup(now, l, msg) {
		return
	}
	id := m.newRequest(l, back)
	if id == nil {
		return
	}
	id.state, id.knownSIDR = StateSIDRREQRcvd, true
	id.path.PKey, id.service, id.remoteID, id.tid = r.PKey(), r.ServiceID(), r.RequestID(), msg.TID()
	m.sidr[key] = id
	out.Events = append(out.Events, Event{Type: EventSIDRREQ, ID: id, Listener: l, Msg: msg})
}

// rejectLookup refuses a look-up that gets no ID.
func (m *Machine) rejectLookup(back *link.Path, msg cmmsg.Msg, status cmmsg.SIDRStatus, out *Batch) {
	if !m.mayAnswer() {
		return
	}
	r := cmmsg.SIDRREQ(msg.Data())
	id := ID{path: Path{Path: *back}, service: r.ServiceID(), remoteID: r.RequestID(), tid: msg.TID()}
	m.sendSIDRREP(&id, &AnswerParams{Status: status}, out)
}

// takesLookup reports whether l may take a look-up. Nothing shows that the address of its sender is not forged. When
// the backlog is full, and until fewer look-ups come, those that have not been dropped before leave most of it to
// repetitions: a flood seldom repeats one.
func (m *Machine) takesLookup(now int64, l *Listener, msg cmmsg.Msg) bool {
	h := m.refused.hash(msg)
	switch {
	case l.p.Backlog.full():
		m.Counters.BacklogFull++
	case !m.guard.flooded(board.Lookup), l.p.Backlog.Used() < floodWaiting, m.refused.has(now, h):
		return true
	default:
		m.Counters.Flooded++
	}
	m.refused.add(now, h)
	m.guard.flood(now, board.Lookup)
	return false
}

// AnswerParams answers a look-up (struct ib_cm_sidr_rep_param).
type AnswerParams struct {
	Status  cmmsg.SIDRStatus
	QPN     uint32 // with SIDRSuccess
	QKey    uint32
	Info    []byte // at most 72 bytes
	ECE     cmmsg.ECE
	Private []byte // at most 136 bytes
}

// Answer sends the SIDR_REP to a look-up (ib_send_cm_sidr_rep). That ends the ID; if the SIDR_REQ comes again, the
// machine repeats the answer for a while.
func (m *Machine) Answer(now int64, id *ID, p *AnswerParams, out *Batch) error {
	const op = "answer"
	if err := id.ready(op, cmmsg.KindSIDRREP, p.Private, StateSIDRREQRcvd); err != nil {
		return err
	}
	switch {
	case len(p.Info) > cmmsg.ARILen:
		return invalid(op, "%d bytes of additional information: must be 0 to %d", len(p.Info), cmmsg.ARILen)
	case p.Status == cmmsg.SIDRSuccess && (p.QPN == 0 || p.QPN > 0xFFFFFF):
		return invalid(op, "QPN %#x: must be 1 to 0xffffff", p.QPN)
	}
	m.answer(now, id, p, out)
	return nil
}

func (m *Machine) answer(now int64, id *ID, p *AnswerParams, out *Batch) {
	id.leaveBacklog()
	msg := m.sendSIDRREP(id, p, out)
	m.retire(id)
	m.keepAnswer(now, &ID{knownSIDR: true, path: id.path, remoteID: id.remoteID}, msg, false)
}

func (m *Machine) sendSIDRREP(id *ID, p *AnswerParams, out *Batch) cmmsg.Msg {
	msg := m.compose(out, &id.path.Path, cmmsg.KindSIDRREP, id.tid)
	f := cmmsg.SIDRREPFields{RequestID: id.remoteID, Status: p.Status, ServiceID: id.service, Info: p.Info}
	if p.Status == cmmsg.SIDRSuccess {
		f.QPN, f.QKey = p.QPN, p.QKey
	}
	cmmsg.SIDRREP(msg.Data()).Put(f)
	msg.SetECE(p.ECE)
	msg.SetPrivate(p.Private)
	return msg
}
