package soft

import (
	"sync/atomic"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// census counts a device's objects that nobody else lists.
type census struct{ pds, cqs, srqs atomic.Int32 }

// describe is what a tool may know of a device.
func (d *device) describe() control.Device {
	d.mu.Lock()
	eng, regions, contexts := d.eng, d.regions, len(d.contexts)
	d.mu.Unlock()
	r := control.Device{
		Name: d.spec.name, Interface: d.spec.iface, Contexts: contexts, QPs: []control.QP{}, Counters: []control.Counter{},
		PDs: int(d.census.pds.Load()), CQs: int(d.census.cqs.Load()), SRQs: int(d.census.srqs.Load()),
	}
	if p := d.port.Load(); p != nil && p.iface != "" {
		r.Interface = p.iface
	}
	if eng == nil {
		return r
	}
	r.MRs = regions.Len()
	c := eng.Counters()
	r.Counters = controlCounters(c.List())
	for qp := range eng.QPs() {
		r.QPs = append(r.QPs, describeQP(qp))
	}
	return r
}

func describeQP(qp *engine.QP) control.QP {
	a, _ := qp.Query()
	c := qp.Counters()
	q := control.QP{
		Num: qp.Num(), Type: verbs.QPType(qp.Type).String(), State: verbs.QPState(a.State).String(), Dest: a.DestQPN,
		RQPSN: a.RQPSN, SQPSN: a.SQPSN, Mig: verbs.MigState(a.Mig).String(), PD: qp.PD, Counters: controlCounters(engine.ListQP(&c)),
	}
	if qp.Num() == 1 {
		q.Type = "GSI"
	}
	if a.State >= transport.RTR && a.Path.Dst.IsValid() {
		q.Peer = a.Path.Dst.String()
	}
	return q
}

func controlCounters(in []engine.Counter) []control.Counter {
	out := make([]control.Counter, len(in))
	for i, c := range in {
		out[i] = control.Counter(c)
	}
	return out
}
