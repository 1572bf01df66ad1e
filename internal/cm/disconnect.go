package cm

import (
	"bytes"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Disconnect ends a connection: it sends a DREQ and repeats it until an answer comes (ib_send_cm_dreq), or answers
// the peer's DREQ (ib_send_cm_drep). The result of a DREQ is EventDREP, EventDREQ if the peer sends one at the same
// time, EventREJ or EventDREQTimeout; then, in both cases, EventTimewaitExit. Private data is at most 220 bytes, 224
// in an answer.
func (m *Machine) Disconnect(now int64, id *ID, private []byte, out *Batch) error {
	const op = "disconnect"
	if !id.destroyed && id.state == StateDREQRcvd {
		if err := fits(op, cmmsg.KindDREP, private); err != nil {
			return err
		}
		m.answerDREQ(now, id, private, out)
		return nil
	}
	if err := id.ready(op, cmmsg.KindDREQ, private, StateEstablished, StateDREQRcvd); err != nil {
		return err
	}
	m.sendDREQ(now, id, private, out)
	return nil
}

// sendDREQ sends a DREQ and repeats it until an answer comes.
func (m *Machine) sendDREQ(now int64, id *ID, private []byte, out *Batch) {
	msg := m.composeDREQ(id, private, out)
	id.state = StateDREQSent
	m.keep(now, id, msg, id.interval, id.maxRetries)
	m.hasten(now, id)
}

// GiveUp ends the wait for the answer to a DREQ, as its last time-out does: the caller knows that none comes. It does
// nothing in other states.
func (m *Machine) GiveUp(now int64, id *ID, out *Batch) {
	if !id.destroyed && id.state == StateDREQSent {
		m.enterTimewait(now, id)
		out.report(EventDREQTimeout, id, nil)
	}
}

func (m *Machine) composeDREQ(id *ID, private []byte, out *Batch) cmmsg.Msg {
	msg := m.compose(out, &id.path.Path, cmmsg.KindDREQ, m.ownTID(id))
	cmmsg.DREQ(msg.Data()).Put(id.localID, id.remoteID, id.remoteQPN)
	msg.SetPrivate(private)
	return msg
}

// answerDREQ sends the DREP that ends the connection.
func (m *Machine) answerDREQ(now int64, id *ID, private []byte, out *Batch) {
	id.answer = bytes.Clone(private)
	m.sendDREP(id, id.tid, out)
	m.enterTimewait(now, id)
}

func (m *Machine) sendDREP(id *ID, tid uint64, out *Batch) {
	msg := m.compose(out, &id.path.Path, cmmsg.KindDREP, tid)
	cmmsg.DREP(msg.Data()).Put(id.localID, id.remoteID)
	msg.SetPrivate(id.answer)
}

// enterTimewait ends a connection whose packets may still be in the network. Its QP can be connected again.
func (m *Machine) enterTimewait(now int64, id *ID) {
	m.stopWaiting(id)
	id.decided()
	m.removeQP(id)
	if id.state != StateDREQRcvd { // it is that of the RTU, and not that of the DREP
		id.answer = nil
	}
	id.state, id.lap = StateTimewait, lapIdle
	m.arm(id, now+peerWait(id.ackTimeout))
}

// onDREQ takes the peer's DREQ.
func (m *Machine) onDREQ(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	r := cmmsg.DREQ(msg.Data())
	id := m.ids[r.RemoteID()]
	switch {
	case id == nil || id.ownPath(back) && id.remoteID != r.LocalID():
		// The connection is over here, or never existed. The DREP ends the peer's wait.
		m.Counters.RxUnmatched++
		if m.mayAnswer() {
			drep := m.compose(out, back, cmmsg.KindDREP, msg.TID())
			cmmsg.DREP(drep.Data()).Put(r.RemoteID(), r.LocalID())
		}
		return
	case !id.ownPath(back):
		m.Counters.RxSpoofed++
		return
	case id.localQPN != r.RemoteQPN():
		m.Counters.RxInvalid++
		return
	}
	m.takeDREQ(now, id, msg, out)
}

func (m *Machine) takeDREQ(now int64, id *ID, msg cmmsg.Msg, out *Batch) {
	switch id.state {
	case StateREPSent, StateMRAREPRcvd, StateEstablished:
		m.leaving(id, msg, out)
		return
	case StateDREQSent: // both ends disconnect: the program need not answer
		id.answer = nil
		m.sendDREP(id, msg.TID(), out)
		m.enterTimewait(now, id)
	case StateTimewait:
		m.Counters.RxDuplicates.add(cmmsg.KindDREQ)
		m.sendDREP(id, msg.TID(), out)
		return
	default: // not connected yet, or the program has not answered yet
		m.Counters.RxDuplicates.add(cmmsg.KindDREQ)
		return
	}
	out.report(EventDREQ, id, msg)
}

// leaving takes a DREQ of a connection and reports it to the program.
func (m *Machine) leaving(id *ID, msg cmmsg.Msg, out *Batch) {
	m.stopWaiting(id)
	id.state, id.lap, id.answer = StateDREQRcvd, lapIdle, nil
	id.tid = msg.TID()
	out.report(EventDREQ, id, msg)
}

// onDREP takes the answer to a DREQ.
func (m *Machine) onDREP(now int64, back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.find(back, msg)
	switch {
	case id == nil:
	case id.state == StateDREQSent, id.state == StateDREQRcvd:
		m.enterTimewait(now, id)
		out.report(EventDREP, id, msg)
	default:
		m.Counters.RxDuplicates.add(cmmsg.KindDREP)
	}
}

// Destroy ends what id is doing, as its state requires, and releases it: there are no more events for it, and no more
// calls are possible (ib_destroy_cm_id). An established connection stays in timewait, without the caller.
func (m *Machine) Destroy(now int64, id *ID, out *Batch) {
	if id.destroyed {
		return
	}
	id.leaveBacklog()
	switch id.state {
	case StateREQSent, StateMRAREQRcvd:
		m.rejectTimeout(id, out)
		m.retire(id)
	case StateREQRcvd, StateMRAREQSent, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		m.refuse(now, id, cmmsg.RejConsumer, nil, nil, out)
	case StateEstablished:
		m.composeDREQ(id, nil, out) // once: the answer is not needed
		m.enterTimewait(now, id)
	case StateDREQSent:
		m.enterTimewait(now, id)
	case StateDREQRcvd:
		m.answerDREQ(now, id, nil, out)
	case StateSIDRREQSent:
		m.retire(id)
	case StateSIDRREQRcvd:
		m.answer(now, id, &AnswerParams{Status: cmmsg.SIDRReject}, out)
	}
	id.destroyed, id.Context = true, nil
	if id.state == StateTimewait {
		id.leftover = true
		m.timewait.push(id, inTimewait)
	}
}
