package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// In Linux the kernel destroys the IDs of a process that is killed, and thereby informs their peers. Here another
// process can do that. The last will of an ID is the datagram that Destroy would send; it changes with the state of
// the connection.

// LastWills calls update for each ID whose last will may have changed since the last call, with the datagram to send
// along the ID's path if the process dies, or nil for none. The datagram is valid during the call. Config.LastWills
// must be set.
func (m *Machine) LastWills(update func(id *ID, mad []byte)) {
	for i, id := range m.changed {
		m.changed[i] = nil
		id.changed = false
		update(id, m.lastWill(id))
	}
	m.changed = m.changed[:0]
}

// change notes that the last will of id may have changed.
func (m *Machine) change(id *ID) {
	if m.cfg.LastWills && !id.changed {
		id.changed = true
		m.changed = append(m.changed, id)
	}
}

// lastWill is the datagram that Destroy would send for a connection; look-ups have none.
func (m *Machine) lastWill(id *ID) []byte {
	out := &m.words
	out.Reset()
	counters := m.Counters // composing counts as sending, but nothing is sent
	switch id.state {
	case StateREQSent, StateMRAREQRcvd:
		m.rejectTimeout(id, out)
	case StateREQRcvd, StateMRAREQSent, StateREPSent, StateMRAREPRcvd, StateREPRcvd, StateMRAREPSent:
		m.sendREJ(id, cmmsg.RejConsumer, nil, nil, out)
	case StateEstablished, StateDREQSent:
		m.composeDREQ(id, nil, out)
	case StateDREQRcvd:
		m.sendDREP(id, id.tid, out)
	default:
		return nil
	}
	m.Counters = counters
	return out.Mail[0].MAD[:]
}
