package soft

import (
	"cmp"
	"maps"
	"slices"
	"sync"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// objects are the sets of a device's objects that only the provider lists.
type objects struct {
	pds  objectSet[*pd]
	cqs  objectSet[*cq]
	srqs objectSet[*srq]
}

// objectSet is a set of objects. The zero value is empty. It is safe for concurrent use.
type objectSet[T interface {
	comparable
	number() uint32
}] struct {
	mu sync.Mutex
	// +checklocks:mu
	all map[T]struct{}
}

func (r *objectSet[T]) add(o T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = make(map[T]struct{})
	}
	r.all[o] = struct{}{}
}

func (r *objectSet[T]) remove(o T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.all, o)
}

// list returns the objects in the order of their numbers.
func (r *objectSet[T]) list() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(maps.Keys(r.all), func(a, b T) int { return cmp.Compare(a.number(), b.number()) })
}

func (p *pd) number() uint32  { return p.num }
func (c *cq) number() uint32  { return c.num }
func (s *srq) number() uint32 { return s.num }

// describe returns a report of the device for tools, with its objects if they asked for them.
func (d *device) describe(objects bool) control.Device {
	d.mu.Lock()
	eng, regions, contexts := d.eng, d.regions, slices.Clone(d.contexts)
	d.mu.Unlock()
	pds, cqs, srqs := d.objects.pds.list(), d.objects.cqs.list(), d.objects.srqs.list()
	r := control.Device{
		Name: d.spec.name, Interface: d.spec.iface, Contexts: len(contexts), QPs: []control.QP{},
		Counters: []control.Counter{},
		PDs:      len(pds), CQs: len(cqs), SRQs: len(srqs),
	}
	if p := d.at(1); p != nil && p.iface != "" {
		r.Interface = p.iface
	}
	if eng == nil {
		return r
	}
	r.MRs = len(regions.All())
	var uses []use
	if d.spec.streams {
		uses = d.streams.describe(d, &r)
	} else {
		uses = describeEngine(eng, &r)
	}
	if objects {
		r.Objects = describeObjects(contexts, regions, pds, cqs, srqs, uses)
	}
	return r
}

// use is what a QP uses.
type use struct {
	num, pd        uint32
	rq             *transport.RecvQueue
	sendCQ, recvCQ transport.CompletionQueue
}

// describeEngine adds the QPs and counters of a RoCE device to a report.
func describeEngine(eng *engine.Engine, r *control.Device) (uses []use) {
	c := eng.Counters()
	r.Counters = controlCounters(c.List())
	qps := slices.Collect(eng.QPs())
	for i, v := range eng.Views(qps) {
		q := qps[i]
		r.QPs = append(r.QPs, describeQP(q, &v))
		uses = append(uses, use{q.Num(), q.PD, q.RQ, q.SendCQ, q.RecvCQ})
	}
	return uses
}

func describeObjects(contexts []*deviceContext, regions *mr.Table, pds []*pd, cqs []*cq, srqs []*srq,
	qps []use) *control.Objects {
	var o control.Objects
	users := make(map[uint32]int) // users of each PD
	for _, c := range contexts {
		o.Contexts = append(o.Contexts, c.num)
	}
	for _, r := range regions.All() {
		users[r.PD]++
		o.MRs = append(o.MRs, control.MR{Num: r.Num(), RKey: r.RKey, LKey: r.LKey, Len: uint64(len(r.Buf)), PD: r.PD})
	}
	receivers, completers := make(map[*transport.RecvQueue][]uint32), make(map[transport.CompletionQueue]int)
	for _, q := range qps {
		users[q.pd]++
		receivers[q.rq] = append(receivers[q.rq], q.num)
		completers[q.sendCQ]++
		completers[q.recvCQ]++
	}
	for _, s := range srqs {
		users[s.pd.num]++
		o.SRQs = append(o.SRQs, s.describe(receivers[s.q]))
	}
	for _, c := range cqs {
		o.CQs = append(o.CQs, control.CQ{Num: c.num, CQE: c.Cap(), Users: completers[&c.CQ], Context: c.ctx.num})
	}
	for _, p := range pds {
		o.PDs = append(o.PDs, control.PD{Num: p.num, Users: users[p.num], Context: p.ctx.num})
	}
	return &o
}

func (s *srq) describe(qps []uint32) control.SRQ {
	d := control.SRQ{Num: s.num, Type: s.kind, PD: s.pd.num, QPs: append([]uint32{}, qps...)}
	slices.Sort(d.QPs)
	if s.cq != nil {
		d.CQ = s.cq.num
	}
	return d
}

func describeQP(qp *engine.QP, v *engine.View) control.QP {
	a := &v.Attr
	q := control.QP{
		Num: qp.Num(), Type: verbs.QPType(qp.Type).String(), State: verbs.QPState(a.State).String(), Dest: a.DestQPN,
		RQPSN: a.RQPSN, SQPSN: a.SQPSN, Mig: verbs.MigState(a.Mig).String(), PD: qp.PD,
		Port:     int(a.Port),
		Counters: controlCounters(engine.ListCounters(&v.Counters)),
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
