package soft_test

import (
	"math"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

// tagged is a sender and a receiver whose SRQ matches tags.
type tagged struct {
	*testing.T
	a, b   *end
	qa, qb *verbs.QP
	srq    *verbs.SRQ
	cq     *stepper // of the SRQ
	seen   uint32   // unexpected messages
}

// newTagged makes both ends. The receiver's SRQ has 16 receives of 2000 bytes, from the middle of its memory on.
func newTagged(t *testing.T, n *network, tags, ops uint32) *tagged {
	ends := newEnds(t, n, 2, nil)
	m := &tagged{T: t, a: ends[0], b: ends[1]}
	m.cq = &stepper{CQ: get(m.b.ctx.CreateCQ(256, &verbs.CQOptions{WCFlags: verbs.WCStandardFlags |
		verbs.WCExWithTMInfo}))(t)}
	t.Cleanup(func() { must(t, m.cq.Close()) })
	m.srq = m.newSRQ(tags, ops)
	m.qa, m.qb = m.a.qp(verbs.QPTypeRC, nil), m.b.qp(verbs.QPTypeRC, func(i *verbs.QPInitAttr) { i.SRQ = m.srq })
	join(t, m.qa, m.qb, nil)
	for i := range 16 {
		must(t, m.srq.PostRecv(verbs.RecvWR{WRID: uint64(1000 + i), SGList: []verbs.SGE{m.b.mr.SGE(1<<19+2000*i, 2000)}}))
	}
	m.a.fill(1)
	return m
}

func (m *tagged) newSRQ(tags, ops uint32) *verbs.SRQ {
	srq := get(m.b.pd.CreateSRQ(&verbs.SRQInitAttr{
		Type: verbs.SRQTypeTM, CQ: m.cq.CQ, Attr: verbs.SRQAttr{MaxWR: 16, MaxSGE: 1}, TMCap: verbs.TMCap{MaxNumTags: tags,
			MaxOps: ops},
	}))(m)
	m.Cleanup(func() { must(m, srq.Close()) })
	return srq
}

// done is a completion of the SRQ.
type done struct {
	id     uint64
	status verbs.WCStatus
	op     verbs.WCOpcode
	flags  verbs.WCFlags
	n      uint32
	tm     verbs.TMInfo
}

// next waits for the next completion of the SRQ and returns it.
func (m *tagged) next() (d done) {
	m.Helper()
	start(m, m.cq)
	d = done{m.cq.WRID, m.cq.Status, m.cq.Opcode, m.cq.WCFlags, m.cq.ByteLen, m.cq.TM}
	m.cq.EndPoll()
	if d.status != verbs.WCSuccess {
		d.n, d.flags = 0, 0
	}
	return d
}

func (m *tagged) want(want done) {
	m.Helper()
	if got := m.next(); got != want {
		m.Fatalf("completion %+v, want %+v", got, want)
	}
}

// add appends a buffer of n bytes to the tag list.
func (m *tagged) add(id, tag, mask uint64, off, n int) uint32 {
	m.Helper()
	ops := []verbs.OpsWR{{
		Opcode: verbs.TagAdd, Flags: verbs.OpsTMSync, UnexpectedCnt: m.seen, RecvWRID: id, Tag: tag, Mask: mask,
		SGList: []verbs.SGE{m.b.mr.SGE(off, n)},
	}}
	must(m, m.srq.PostOps(ops...))
	return ops[0].Handle
}

const exact = math.MaxUint64

// send sends a message of headers and n bytes of the sender's memory.
func (m *tagged) send(header []byte, n int) {
	m.Helper()
	copy(m.a.buf[1<<19:], header)
	must(m, m.qa.PostSend(verbs.SendWR{
		Opcode: verbs.WRSend, Flags: verbs.SendSignaled, SGList: []verbs.SGE{m.a.mr.SGE(1<<19, len(header)),
			m.a.mr.SGE(0, n)},
	}))
	m.a.good(1)
}

func eager(tag uint64) []byte {
	return verbs.TMHeader{Op: verbs.TMEager, AppCtx: uint32(tag) + 7, Tag: tag}.Append(nil)
}

// response returns a receive of the sender for the response to a rendezvous.
func (m *tagged) response() verbs.RecvWR {
	return verbs.RecvWR{WRID: 50, SGList: []verbs.SGE{m.a.mr.SGE(3<<18, 100)}}
}

// rndv returns the request for a rendezvous of n bytes of the sender's memory.
func (m *tagged) rndv(tag uint64, n uint32) []byte {
	h := verbs.TMHeader{Op: verbs.TMRndv, AppCtx: uint32(tag) + 7, Tag: tag}.Append(nil)
	return verbs.RVHeader{Addr: m.a.mr.Addr(), RKey: m.a.mr.RKey(), Length: n}.Append(h)
}

func info(tag uint64) verbs.TMInfo { return verbs.TMInfo{Tag: tag, Priv: uint32(tag) + 7} }

const fits = verbs.WCTMMatch | verbs.WCTMDataValid

// expected is the completion of a message that matched a buffer, unexpected that of one that did not.
func expected(id, tag uint64, n int) done {
	return done{id, verbs.WCSuccess, verbs.WCTMRecv, fits, uint32(n), info(tag)}
}

// wantRead expects the completions of a rendezvous: the match, then the data.
func (m *tagged) wantRead(id, tag uint64, n int) {
	m.Helper()
	m.want(done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMMatch, 0, info(tag)})
	m.want(done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMDataValid, uint32(n), info(tag)})
}

func unexpected(id, tag uint64, n int) done {
	return done{id, verbs.WCSuccess, verbs.WCTMRecv, verbs.WCTMSyncReq, uint32(n), info(tag)}
}
