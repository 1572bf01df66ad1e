package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Reject refuses a request or a reply (ib_send_cm_rej), with any reason: cmmsg.RejConsumer if no other fits. ari is
// additional information for some reasons, at most 72 bytes; private data is at most 148 bytes.
func (m *Machine) Reject(now int64, id *ID, reason cmmsg.Reason, ari, private []byte, out *Batch) error {
	const op = "reject"
	if err := id.ready(op, cmmsg.KindREJ, private, StateREQRcvd, StateMRAREQSent, StateREPRcvd,
		StateMRAREPSent); err != nil {
		return err
	}
	if len(ari) > cmmsg.ARILen {
		return invalid(op, "%d bytes of additional information: must be 0 to %d", len(ari), cmmsg.ARILen)
	}
	id.leaveBacklog()
	m.refuse(now, id, reason, ari, private, out)
	return nil
}

// refuse sends a REJ, and keeps it if it answers a request.
func (m *Machine) refuse(now int64, id *ID, reason cmmsg.Reason, ari, private []byte, out *Batch) {
	msg := m.sendREJ(id, reason, ari, private, out)
	state := id.state
	m.retire(id)
	if state.is(StateREQRcvd, StateMRAREQSent) {
		kept := &ID{knownPeer: true, path: id.path, remoteGUID: id.remoteGUID, remoteID: id.remoteID, class: id.class}
		m.keepAnswer(now, kept, msg, state == StateMRAREQSent)
	}
}

// sendREJ refuses the message that has brought id into its state.
func (m *Machine) sendREJ(id *ID, reason cmmsg.Reason, ari, private []byte, out *Batch) cmmsg.Msg {
	local, about := id.localID, cmmsg.AboutOther
	switch id.state {
	case StateREQRcvd:
		local, about = 0, cmmsg.AboutREQ // the peer does not know our ID
	case StateMRAREQSent:
		about = cmmsg.AboutREQ
	case StateREPRcvd, StateMRAREPSent:
		about = cmmsg.AboutREP
	}
	msg := m.compose(out, &id.path.Path, cmmsg.KindREJ, id.tid)
	cmmsg.REJ(msg.Data()).Put(local, id.remoteID, about, reason, ari)
	msg.SetPrivate(private)
	return msg
}

// rejectTimeout sends a REJ because this end has stopped waiting. The peer finds the connection by our GUID and ID.
func (m *Machine) rejectTimeout(id *ID, out *Batch) {
	m.sendREJ(id, cmmsg.RejTimeout, be.AppendUint64(nil, m.cfg.GUID), nil, out)
}

// rejectREQ refuses a request that gets no ID.
func (m *Machine) rejectREQ(back *link.Path, req cmmsg.Msg, reason cmmsg.Reason, ari []byte, out *Batch) {
	if !m.mayAnswer() {
		return
	}
	msg := m.compose(out, back, cmmsg.KindREJ, req.TID())
	cmmsg.REJ(msg.Data()).Put(0, req.LocalID(), cmmsg.AboutREQ, reason, ari)
}

// rejectREP refuses a reply without any change to the connection that it is for, if there is one.
func (m *Machine) rejectREP(back *link.Path, rep cmmsg.Msg, reason cmmsg.Reason, out *Batch) {
	msg := m.compose(out, back, cmmsg.KindREJ, rep.TID())
	cmmsg.REJ(msg.Data()).Put(rep.RemoteID(), rep.LocalID(), cmmsg.AboutREP, reason, nil)
}

// rejectUnknown answers a reply to an unknown request, which ends the peer's wait.
func (m *Machine) rejectUnknown(back *link.Path, rep cmmsg.Msg, out *Batch) {
	if m.mayAnswer() {
		m.rejectREP(back, rep, cmmsg.RejInvalidCommID, out)
	}
}

// rejectEvicted answers an RTU of a handshake that was evicted.
func (m *Machine) rejectEvicted(back *link.Path, rtu cmmsg.Msg, out *Batch) {
	msg := m.compose(out, back, cmmsg.KindREJ, rtu.TID())
	cmmsg.REJ(msg.Data()).Put(rtu.RemoteID(), rtu.LocalID(), cmmsg.AboutOther, cmmsg.RejTimeout,
		be.AppendUint64(nil, m.cfg.GUID))
}

// onREJ takes a refusal.
func (m *Machine) onREJ(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.findRejected(back, msg)
	if id != nil {
		m.takeREJ(now, id, msg, out)
	}
}

func (m *Machine) takeREJ(now int64, id *ID, msg cmmsg.Msg, out *Batch) {
	stale := cmmsg.REJ(msg.Data()).Reason() == cmmsg.RejStale
	switch id.state {
	case StateREQSent, StateMRAREQRcvd, StateREPSent, StateMRAREPRcvd, StateREQRcvd, StateMRAREQSent:
		if stale {
			m.enterTimewait(now, id)
		} else {
			m.retire(id)
		}
	case StateREPRcvd, StateMRAREPSent, StateEstablished, StateDREQSent:
		m.enterTimewait(now, id)
	default:
		m.Counters.RxDuplicates.add(cmmsg.KindREJ)
		return
	}
	out.report(EventREJ, id, msg)
}

// findRejected finds the connection of a REJ. A REJ of a REQ may have no ID of the peer, and one for a time-out may
// not have ours.
func (m *Machine) findRejected(back *link.Path, msg cmmsg.Msg) *ID {
	r := cmmsg.REJ(msg.Data())
	if r.Reason() == cmmsg.RejTimeout && len(r.ARI()) >= 8 {
		id := m.peers[peerKey{cmmsg.GID(back.Dst), be.Uint64(r.ARI()), r.LocalID()}]
		switch {
		case id == nil:
			m.Counters.RxUnmatched++
		case !id.ownPath(back):
			m.Counters.RxSpoofed++
		default:
			return id
		}
		return nil
	}
	id := m.ids[r.RemoteID()]
	switch {
	case id == nil:
		m.Counters.RxUnmatched++
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
	case r.About() == cmmsg.AboutREQ:
		if id.state.is(StateREQSent, StateMRAREQRcvd) {
			return id
		}
		m.Counters.RxDuplicates.add(cmmsg.KindREJ)
	case r.LocalID() == id.remoteID || r.LocalID() == 0 && id.state.is(StateREPSent, StateMRAREPRcvd):
		return id
	default:
		m.Counters.RxUnmatched++
	}
	return nil
}

// Delay sends an MRA: the answer to the peer's REQ, REP or LAP takes longer (ib_send_cm_mra), up to the time of the
// code. A machine sends it by itself when a REQ or REP comes again.
func (m *Machine) Delay(id *ID, code uint8, private []byte, out *Batch) error {
	const op = "delay"
	err := id.ready(op, cmmsg.KindMRA, private, StateREQRcvd, StateMRAREQSent, StateREPRcvd, StateMRAREPSent,
		StateEstablished)
	if err != nil {
		return err
	}
	if code > 31 {
		return invalid(op, "service timeout code %d: must be 0 to 31", code)
	}
	switch id.state {
	case StateEstablished:
		if id.lap != lapRcvd {
			return invalid(op, "the connection is established: must have a LAP that waits for an answer")
		}
		m.sendMRA(id, cmmsg.AboutOther, code, private, out)
	case StateREQRcvd, StateMRAREQSent:
		m.change(id)
		id.state = StateMRAREQSent
		m.sendMRA(id, cmmsg.AboutREQ, code, private, out)
	default:
		id.state = StateMRAREPSent
		m.sendMRA(id, cmmsg.AboutREP, code, private, out)
	}
	return nil
}

func (m *Machine) sendMRA(id *ID, about cmmsg.About, code uint8, private []byte, out *Batch) {
	msg := m.compose(out, &id.path.Path, cmmsg.KindMRA, id.tid)
	cmmsg.MRA(msg.Data()).Put(id.localID, id.remoteID, about, code)
	msg.SetPrivate(private)
}

// onMRA extends the present wait.
func (m *Machine) onMRA(now int64, back *link.Path, msg cmmsg.Msg) {
	r := cmmsg.MRA(msg.Data())
	id := m.ids[r.RemoteID()]
	switch {
	case id == nil:
		m.Counters.RxUnmatched++
		return
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
		return
	case r.About() != cmmsg.AboutREQ && r.LocalID() != id.remoteID:
		m.Counters.RxUnmatched++
		return
	}
	switch {
	case r.About() == cmmsg.AboutREQ && id.state.is(StateREQSent, StateMRAREQRcvd):
		id.state = StateMRAREQRcvd
	case r.About() == cmmsg.AboutREP && id.state.is(StateREPSent, StateMRAREPRcvd):
		id.state = StateMRAREPRcvd
	case r.About() == cmmsg.AboutOther && id.state == StateEstablished && id.lap == lapSent:
	default:
		m.Counters.RxDuplicates.add(cmmsg.KindMRA)
		return
	}
	if id.halfOpen {
		m.learnSource(id)
	}
	m.extend(now, id, peerWait(r.ServiceTimeout())+peerWait(id.ackTimeout))
}
