package soft

import (
	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwtcp"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// count returns the counters of an iWARP device.
func (s *streams) count() counts {
	_, sum := s.Views()
	return &sum
}

// describe adds the QPs and counters of an iWARP device to a report.
func (s *streams) describe(d *device, r *control.Device) (uses []use) {
	views, sum := s.Views()
	r.Counters = controlCounters(sum.List())
	for i := range views {
		v := &views[i]
		q := describeStream(v)
		if v.Local.IsValid() {
			q.Port = int(d.PortOf(v.Local.Addr()))
		}
		r.QPs = append(r.QPs, q)
		uses = append(uses, use{v.QP.Num, v.QP.PD, v.QP.RQ, v.QP.SendCQ, v.QP.RecvCQ})
	}
	return uses
}

// describeStream describes a QP over a stream. Neither end knows the QP number of the other.
func describeStream(v *iwtcp.View) control.QP {
	q := control.QP{
		Num: v.QP.Num, Type: verbs.QPTypeRC.String(), State: verbs.QPState(v.State).String(),
		Mig: verbs.MigMigrated.String(), PD: v.QP.PD, Counters: controlCounters(v.Counters.List()),
	}
	if v.State >= transport.RTR && v.Remote.IsValid() {
		q.Local, q.Peer = v.Local.String(), v.Remote.String()
	}
	return q
}

// streamCounters returns the counters of a QP over a stream, nil for other QPs.
func streamCounters(q *verbs.QP) []engine.Counter {
	s := driver.Of[*streamQP](q)
	if s == nil {
		return nil
	}
	v := s.View()
	return v.Counters.List()
}
