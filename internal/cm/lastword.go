package cm

import "github.com/verbena-rdma/verbena/internal/wire/cmmsg"

// In Linux the kernel destroys the IDs of a process that is killed, and so tells their peers. What Destroy would send for each ID can be
// given to somebody who outlives the process: its last word, which changes as the connection goes on.

// LastWords tells of each ID whose last word may have changed since the last call: the datagram to be sent along the ID's path if the process dies
// now, nil if there is nothing to say. It is the caller's until it returns. Config.LastWords must be set.
func (m *Machine) LastWords(tell func(id *ID, mad []byte)) {
	for i, id := range m.changed {
		m.changed[i] = nil
		id.changed = false
		tell(id, m.lastWord(id))
	}
	m.changed = m.changed[:0]
}

// change notes that the last word of id may be another one.
func (m *Machine) change(id *ID) {
	if m.cfg.LastWords && !id.changed {
		id.changed = true
		m.changed = append(m.changed, id)
	}
}

// lastWord is what Destroy would send for a connection; look-ups end without a word.
func (m *Machine) lastWord(id *ID) []byte {
	out := &m.words
	out.Reset()
	counters := m.Counters // composing counts as sending, and nothing is sent
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
