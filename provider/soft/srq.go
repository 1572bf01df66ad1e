package soft

import (
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// srq is a DriverSRQ.
type srq struct {
	verbs.DriverUnsupported
	q    *transport.RecvQueue
	up   verbs.DriverEvents
	pd   *pd
	num  uint32
	kind string // BASIC, XRC or TM
	cq   *cq    // of an XRC or TM SRQ; nil for BASIC
}

// CreateSRQ makes a shared receive queue.
func (p *pd) CreateSRQ(init *verbs.SRQInitAttr, up verbs.DriverEvents) (verbs.DriverSRQ, error) {
	if p.ctx.dev.spec.streams && init.Type != verbs.SRQTypeBasic {
		return nil, notOverStreams("an SRQ of type " + init.Type.String())
	}
	switch init.Type {
	case verbs.SRQTypeXRC:
		return p.createXRCSRQ(init, up)
	case verbs.SRQTypeTM:
		return p.createTMSRQ(init, up)
	}
	return p.newSRQ("BASIC", nil, &init.Attr, up), nil
}

// newSRQ makes an SRQ of a kind: BASIC, or XRC or TM with a CQ.
func (p *pd) newSRQ(kind string, c *cq, init *verbs.SRQAttr, up verbs.DriverEvents) *srq {
	s := &srq{
		q: transport.NewRecvQueue(int(init.MaxWR), int(init.MaxSGE), true, p.num), up: up,
		pd: p, num: p.ctx.dev.lastSRQ.Add(1), kind: kind, cq: c,
	}
	p.ctx.dev.objects.srqs.add(s)
	s.q.OnLimit = func() { up.Event(verbs.EventSRQLimitReached) }
	init.MaxWR, init.MaxSGE = uint32(s.q.Cap()), uint32(s.q.MaxSGE())
	return s
}

// PostRecv appends receives.
func (s *srq) PostRecv(wrs []verbs.RecvWR) (int, error) { return postRecv(s.q, wrs) }

// Modify changes sizes and limit, or nothing if it fails.
func (s *srq) Modify(attr *verbs.SRQAttr, mask verbs.SRQAttrMask) error {
	if mask&verbs.SRQAttrMaxWR != 0 {
		if err := s.q.Resize(int(attr.MaxWR), int(attr.MaxSGE)); err != nil {
			return fail(verbs.EINVAL, "MaxWR %d: must not be less than the number of outstanding receives", attr.MaxWR)
		}
		attr.MaxWR, attr.MaxSGE = uint32(s.q.Cap()), uint32(s.q.MaxSGE())
	}
	if mask&verbs.SRQAttrLimit != 0 {
		s.q.SetLimit(attr.SRQLimit)
	}
	return nil
}

// Query returns sizes and limit.
func (s *srq) Query() (verbs.SRQAttr, error) {
	return verbs.SRQAttr{MaxWR: uint32(s.q.Cap()), MaxSGE: uint32(s.q.MaxSGE()), SRQLimit: s.q.Limit()}, nil
}

// Destroy removes the SRQ from the list of objects. No QP uses it.
func (s *srq) Destroy() error {
	s.pd.ctx.dev.objects.srqs.remove(s)
	return nil
}

// Limits of tag matching. A search takes time linear in the length of the list.
const (
	maxTags   = 4096
	maxTagOps = 1 << 16
	maxTagSGE = 8
)

// tmCaps are the device's capabilities of tag matching.
var tmCaps = verbs.TMCaps{
	MaxRndvHdrSize: transport.MaxRndvHeader, MaxNumTags: maxTags, Flags: verbs.TMCapRC, MaxOps: maxTagOps,
	MaxSGE: maxTagSGE,
}

// tmSRQ is a DriverSRQ of type TM.
type tmSRQ struct {
	*srq
}

// createTMSRQ makes an SRQ with tag matching.
func (p *pd) createTMSRQ(init *verbs.SRQInitAttr, up verbs.DriverEvents) (verbs.DriverSRQ, error) {
	if err := checkCQs(init.CQ); err != nil {
		return nil, err
	}
	s := &tmSRQ{p.newSRQ("TM", cqOf(init.CQ), &init.Attr, up)}
	s.q.MatchTags(int(init.TMCap.MaxNumTags), int(init.TMCap.MaxOps), maxTagSGE, &s.cq.CQ)
	s.cq.up.add(s)
	return s, nil
}

// PostOps executes operations on the tag list.
func (s *tmSRQ) PostOps(ops []verbs.OpsWR) (int, error) {
	tags := s.q.Tags()
	for i := range ops {
		wr := &ops[i]
		op := transport.TagOp{
			WRID: wr.WRID, Op: transport.OpsCode(wr.Opcode), Signaled: wr.Flags&verbs.OpsSignaled != 0,
			Sync: wr.Flags&verbs.OpsTMSync != 0, Unexpected: wr.UnexpectedCnt, Handle: wr.Handle,
			RecvWRID: wr.RecvWRID, Tag: wr.Tag, Mask: wr.Mask, SGEs: toSGEs(wr.SGList),
		}
		if err := tags.Do(&op); err != nil {
			return i, verbsError("", err)
		}
		wr.Handle = op.Handle
	}
	return len(ops), nil
}

// Destroy removes the SRQ's completions from its CQ. No QP uses the SRQ.
func (s *tmSRQ) Destroy() error {
	s.cq.up.remove(s)
	s.cq.PurgeSRQ(s.q)
	return s.srq.Destroy()
}
