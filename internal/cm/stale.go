package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// stale refuses a REQ or REP from a QP that is connected already. One of the two connections is a leftover: the old
// one, as a connected QP sends no request. The old connection is closed; the program gets the usual events of that
// (EventDREP, EventDREQTimeout). The peer may try again.
func (m *Machine) stale(now int64, old *ID, back *link.Path, msg cmmsg.Msg, out *Batch) {
	m.Counters.Stale++
	if msg.Kind() == cmmsg.KindREQ {
		m.rejectREQ(back, msg, cmmsg.RejStale, nil, out)
	} else {
		m.rejectREP(back, msg, cmmsg.RejStale, out)
	}
	if old.state == StateEstablished {
		m.sendDREQ(now, old, nil, out)
	}
}
