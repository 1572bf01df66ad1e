package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// lapState is the exchange about an alternate path of an established connection.
type lapState uint8

const (
	lapIdle lapState = iota
	lapSent          // waits for the APR
	lapRcvd          // the program has not answered yet
)

// LoadPath asks the peer to load an alternate path (ib_send_cm_lap) and repeats that until an answer comes: EventAPR,
// or EventLAPTimeout. Linux does not answer over RoCE. timeout is the code of the time within which the peer is to
// answer; 0 means DefaultTimeout.
func (m *Machine) LoadPath(now int64, id *ID, alt *Path, timeout uint8, private []byte, out *Batch) error {
	const op = "load path"
	if err := id.ready(op, cmmsg.KindLAP, private, StateEstablished); err != nil {
		return err
	}
	p := *alt
	p.setDefaults()
	if err := p.check(op); err != nil {
		return err
	}
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	switch {
	case id.lap != lapIdle:
		return invalid(op, "the connection has sent a LAP: must wait for its answer")
	case timeout > 31:
		return invalid(op, "CM timeout %d: must be 0 to 31", timeout)
	}
	id.lap = lapSent
	msg := m.compose(out, &id.path.Path, cmmsg.KindLAP, m.ownTID(id))
	cmmsg.LAP(msg.Data()).Put(id.localID, id.remoteID, id.remoteQPN, timeout,
		p.fields(AckTimeout(m.cfg.AckDelay, p.LifeTime)))
	msg.SetPrivate(private)
	m.keep(now, id, msg, 2*wait(p.LifeTime)+wait(timeout), id.maxRetries)
	return nil
}

// onLAP takes a peer's request for an alternate path.
func (m *Machine) onLAP(back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.find(back, msg)
	switch {
	case id == nil:
	case id.state != StateEstablished || cmmsg.LAP(msg.Data()).RemoteQPN() != id.localQPN:
		m.Counters.RxInvalid++
	case id.lap == lapIdle:
		id.lap = lapRcvd
		id.tid = msg.TID()
		out.report(EventLAP, id, msg)
	default: // not answered yet, or both ends have sent a LAP
		m.Counters.RxDuplicates.add(cmmsg.KindLAP)
	}
}

// AnswerPath answers a LAP (ib_send_cm_apr). info is at most 72 bytes, private data 148.
func (m *Machine) AnswerPath(id *ID, status cmmsg.APRStatus, info, private []byte, out *Batch) error {
	const op = "answer path"
	if err := id.ready(op, cmmsg.KindAPR, private, StateEstablished); err != nil {
		return err
	}
	switch {
	case id.lap != lapRcvd:
		return invalid(op, "the connection has no LAP: must have one that waits for an answer")
	case len(info) > cmmsg.ARILen:
		return invalid(op, "%d bytes of additional information: must be 0 to %d", len(info), cmmsg.ARILen)
	}
	id.lap = lapIdle
	msg := m.compose(out, &id.path.Path, cmmsg.KindAPR, id.tid)
	cmmsg.APR(msg.Data()).Put(id.localID, id.remoteID, status, info)
	msg.SetPrivate(private)
	return nil
}

// onAPR takes the answer to a LAP.
func (m *Machine) onAPR(back *link.Path, msg cmmsg.Msg, out *Batch) {
	id := m.find(back, msg)
	switch {
	case id == nil:
	case id.state != StateEstablished || id.lap != lapSent:
		m.Counters.RxDuplicates.add(cmmsg.KindAPR)
	default:
		m.stopWaiting(id)
		id.lap = lapIdle
		out.report(EventAPR, id, msg)
	}
}
