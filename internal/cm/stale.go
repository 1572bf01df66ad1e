package cm

import (
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// stale refuses a REQ or REP from a QP with which there is a connection: one of the two is a leftover, and that
// must be the old one, since a QP that is connected asks for nothing. So the old one is closed; the program hears of it as of
// any end (EventDREP, EventDREQTimeout). The peer may try again.
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
