package soft

import (
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// srq is an SRQDriver.
type srq struct {
	q    *transport.RecvQueue
	up   verbs.SRQUpcalls
	pd   *pd
	num  uint32
	kind string // BASIC, XRC or TM
	cq   *cq    // of an XRC or TM SRQ
}

// CreateSRQ makes a shared receive queue.
func (p *pd) CreateSRQ(init *verbs.SRQAttr, up verbs.SRQUpcalls) (verbs.SRQDriver, error) {
	return p.newSRQ("BASIC", nil, init, up), nil
}

// newSRQ makes an SRQ of a kind, which is BASIC, XRC or TM, with the CQ of the latter two.
func (p *pd) newSRQ(kind string, c *cq, init *verbs.SRQAttr, up verbs.SRQUpcalls) *srq {
	s := &srq{
		q: transport.NewRecvQueue(int(init.MaxWR), int(init.MaxSGE), true, p.num), up: up,
		pd: p, num: p.ctx.dev.lastSRQ.Add(1), kind: kind, cq: c,
	}
	p.ctx.dev.census.srqs.add(s)
	s.q.OnLimit = func() { up.Event(verbs.EventSRQLimitReached) }
	init.MaxWR, init.MaxSGE = uint32(s.q.Cap()), uint32(s.q.MaxSGE())
	return s
}

// PostRecv appends receives.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return postRecv(s.q, wrs) }

// Modify changes sizes and limit, or nothing.
func (s *srq) Modify(attr *verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	if mask&verbs.SRQAttrMaxWR != 0 {
		if err := s.q.Resize(int(attr.MaxWR), int(attr.MaxSGE)); err != nil {
			return fail(verbs.EINVAL, "more than %d receives are outstanding", attr.MaxWR)
		}
		attr.MaxWR, attr.MaxSGE = uint32(s.q.Cap()), uint32(s.q.MaxSGE())
	}
	if mask&verbs.SRQAttrLimit != 0 {
		s.q.SetLimit(attr.SRQLimit)
	}
	return nil
}

// Query reads sizes and limit.
func (s *srq) Query() (verbs.SRQAttr, error) {
	return verbs.SRQAttr{MaxWR: uint32(s.q.Cap()), MaxSGE: uint32(s.q.MaxSGE()), SRQLimit: s.q.Limit()}, nil
}

// Destroy leaves the queue to the collector: no QP uses it.
func (s *srq) Destroy() error {
	s.pd.ctx.dev.census.srqs.remove(s)
	return nil
}
