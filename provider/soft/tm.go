package soft

import (
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tag matching is linear in the length of a list, which bounds it.
const (
	maxTags   = 4096
	maxTagOps = 1 << 16
	maxTagSGE = 8
)

var tmCaps = verbs.TMCaps{
	MaxRndvHdrSize: transport.MaxRndvHeader, MaxNumTags: maxTags, Flags: verbs.TMCapRC, MaxOps: maxTagOps, MaxSGE: maxTagSGE,
}

// tmSRQ is a TMSRQDriver.
type tmSRQ struct {
	*srq
}

// CreateTMSRQ makes an SRQ that matches tags.
func (p *pd) CreateTMSRQ(c verbs.CQDriver, init *verbs.SRQAttr, tm *verbs.TMCap, up verbs.SRQUpcalls) (verbs.TMSRQDriver, error) {
	if err := working(c); err != nil {
		return nil, err
	}
	s := &tmSRQ{p.newSRQ("TM", c.(*cq), init, up)}
	s.q.MatchTags(int(tm.MaxNumTags), int(tm.MaxOps), maxTagSGE, s.cq.CQ)
	s.cq.up.add(s)
	return s, nil
}

// PostOps executes operations on the list of tags.
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

// Destroy removes what is left of the SRQ from its CQ. No QP uses it.
func (s *tmSRQ) Destroy() error {
	s.cq.up.remove(s)
	s.cq.PurgeSRQ(s.q)
	return s.srq.Destroy()
}
