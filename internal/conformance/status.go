package conformance

import (
	"fmt"
	"math"
	"strings"

	"github.com/verbena-rdma/verbena/verbs"
)

// statusCase is one way in which a request between two correct devices fails, and the results at both
// sides. The requester has the request under test (wr_id 7), an unsignaled one behind it (8), and a receive
// (9). The responder has receives (1 and 2) of 100 bytes and, if it fails too, a send (3) that it posts at
// the end.
type statusCase struct {
	name string
	typ  verbs.QPType
	opts verbs.ConnectOptions
	// before changes the two sides after they are connected; dial, if set, changes b's data before a uses it.
	before func(s *sides)
	dial   func(info *verbs.QPInfo)
	noRecv bool
	op     verbs.WROpcode
	n      int // bytes
	change func(s *sides, wr *verbs.SendWR)

	a, b seen
}

// seen has the results at one side: completions of its send and receive queues, in order, the QP's state
// and its events. A completion is "wr_id STATUS", a successful one "wr_id SUCCESS OPCODE byte_len".
type seen struct {
	sends, recvs string
	state        verbs.QPState
	events       []verbs.EventType
}

// sides is a running case.
type sides struct {
	*T
	a, b   *end
	qa, qb *verbs.QP
}

const (
	flushedSends = ", 8 WR_FLUSH_ERR"
	flushedRecv  = "9 WR_FLUSH_ERR"
	flushedBoth  = "1 WR_FLUSH_ERR, 2 WR_FLUSH_ERR"
)

var (
	fine      = seen{state: verbs.QPSRTS}
	accessErr = []verbs.EventType{verbs.EventQPAccessErr}
	reqErr    = []verbs.EventType{verbs.EventQPReqErr}
)

// failed is the requester's result on RC: the failure, flushed requests behind it, and ERR.
func failed(status string) seen {
	return seen{sends: "7 " + status + flushedSends, recvs: flushedRecv, state: verbs.QPSErr}
}

// sqe is the requester's result on UC and UD: SQE, and the receive stays posted.
func sqe(status string) seen {
	return seen{sends: "7 " + status + flushedSends, state: verbs.QPSSQE}
}

// refusing is the responder's result on RC if no receive was consumed.
func refusing(events []verbs.EventType) seen {
	return seen{recvs: flushedBoth, state: verbs.QPSErr, events: events}
}

func (s *sides) badLKey(wr *verbs.SendWR)      { wr.SGList[0].LKey ^= 0x55 }
func (s *sides) pastTheEnd(wr *verbs.SendWR)   { wr.SGList[0].Addr = s.a.mr.Addr() + memory - 7 }
func (s *sides) beforeStart(wr *verbs.SendWR)  { wr.SGList[0].Addr = s.a.mr.Addr() - 1 }
func (s *sides) otherPD(wr *verbs.SendWR)      { wr.SGList[0] = s.foreign(s.a).SGE(0, 8) }
func (s *sides) readOnly(wr *verbs.SendWR)     { wr.SGList[0] = s.a.region(make([]byte, 64), 0).SGE(0, 8) }
func (s *sides) wrongRKey(wr *verbs.SendWR)    { wr.RKey ^= 0x55 }
func (s *sides) rangeTooLong(wr *verbs.SendWR) { wr.RemoteAddr = s.b.mr.Addr() + memory - 7 }
func (s *sides) rangeBefore(wr *verbs.SendWR)  { wr.RemoteAddr = s.b.mr.Addr() - 8 }
func (s *sides) rangeWraps(wr *verbs.SendWR)   { wr.RemoteAddr = math.MaxUint64 - 7 }
func (s *sides) rightless(wr *verbs.SendWR) {
	s.target(s.b.region(make([]byte, 4096), verbs.AccessLocalWrite), wr)
}
func (s *sides) foreignMR(wr *verbs.SendWR)  { s.target(s.foreign(s.b), wr) }
func (s *sides) misaligned(wr *verbs.SendWR) { wr.RemoteAddr += 4 }

func (s *sides) deregistered(wr *verbs.SendWR) {
	mr := s.b.region(make([]byte, 4096), allAccess)
	s.target(mr, wr)
	s.must(mr.Close())
}

func (s *sides) target(mr *verbs.MR, wr *verbs.SendWR) { wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey() }

// foreign returns a region of another PD.
func (s *sides) foreign(e *end) *verbs.MR {
	pd := closing(s.T, get(e.ctx.AllocPD())(s.T))
	return closing(s.T, get(pd.RegMR(make([]byte, 4096), allAccess))(s.T))
}

func (s *sides) badReceive() {
	s.repost(func(wr *verbs.RecvWR) { wr.SGList[0].LKey ^= 0x55 })
}

// repost replaces the responder's receives; change modifies the first one.
func (s *sides) repost(change func(wr *verbs.RecvWR)) {
	first := s.b.recv(1, 0, 100)
	change(&first)
	s.must(s.qb.PostRecv(first, s.b.recv(2, 0, 100)))
}

// statusCases returns the cases of the tables.
func statusCases() (cases []testCase) {
	for _, c := range append(localFailures, remoteFailures...) {
		name := fmt.Sprintf("V_WC_05_X_WC_02_%v_%s", c.typ, c.name)
		cases = append(cases, testCase{name, c.run})
	}
	return cases
}

func (c *statusCase) run(t *T) {
	s := &sides{T: t}
	s.a, s.b = t.ends()
	s.qa, s.qb = s.a.qp(c.typ, nil), s.b.qp(c.typ, nil)
	ia, ib := t.info(s.qa), t.info(s.qb)
	if c.dial != nil {
		c.dial(&ib)
	}
	t.must(s.qa.Connect(ib, longTimeout(&c.opts)))
	t.must(s.qb.Connect(ia, longTimeout(&c.opts)))
	if c.before != nil {
		c.before(s)
	} else if !c.noRecv {
		s.repost(func(*verbs.RecvWR) {})
	}
	t.must(s.qa.PostRecv(s.a.recv(9, 0, 100)))
	wr, behind := s.a.rdma(c.op, 7, s.b, 0, c.n), s.a.send(8, 0, 1)
	behind.Flags = 0
	if c.typ == verbs.QPTypeUD {
		wr, behind = s.a.datagram(s.qa, s.qb, wr), s.a.datagram(s.qa, s.qb, behind)
	}
	if c.change != nil {
		c.change(s, &wr)
	}
	held := append([]byte(nil), s.b.buf...)
	t.must(s.qa.PostSend(wr, behind))
	s.check("the requester", s.a, s.qa, c.a)
	s.check("the responder", s.b, s.qb, c.b)
	if c.op != verbs.WRSend && c.op != verbs.WRSendWithImm {
		t.equal("the responder's memory", s.b.buf, held)
	}
	s.nothingMore(c)
}

// check waits for the results at one side.
func (s *sides) check(side string, e *end, qp *verbs.QP, want seen) {
	s.Helper()
	for _, q := range []struct {
		name string
		cq   *verbs.CQ
		want string
	}{{"sends", e.sendCQ, want.sends}, {"receives", e.rcvQ, want.recvs}} {
		if q.want == "" {
			continue
		}
		var got []string
		for _, wc := range s.poll(q.cq, strings.Count(q.want, ",")+1) {
			text := fmt.Sprintf("%d %s", wc.WRID, wc.Status.Name())
			if wc.Status == verbs.WCSuccess {
				text += fmt.Sprintf(" %v %d", wc.Opcode, wc.ByteLen)
			} else if wc.QPNum != qp.QPN() || wc.Cause == nil {
				s.Errorf("%s: completion %+v", side, wc)
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != q.want {
			s.Errorf("%s's %s: %s; want %s", side, q.name, text, q.want)
		}
	}
	for _, ev := range want.events {
		if got := e.event(); got.Type != ev || got.QP != qp {
			s.Errorf("%s: event %v, want %v", side, got.Type, ev)
		}
	}
	s.is(qp, want.state)
}

// nothingMore checks that there are no further completions and events, and that requests posted now
// complete as the state requires.
func (s *sides) nothingMore(c *statusCase) {
	s.Helper()
	s.silent("all completions were polled", s.a.sendCQ, s.a.rcvQ, s.b.sendCQ, s.b.rcvQ)
	s.a.noEvent("all events were read")
	s.b.noEvent("all events were read")
	for _, side := range []struct {
		e     *end
		from  *verbs.QP
		to    *verbs.QP
		state verbs.QPState
	}{{s.a, s.qa, s.qb, c.a.state}, {s.b, s.qb, s.qa, c.b.state}} {
		wr := side.e.send(3, 0, 1)
		if c.typ == verbs.QPTypeUD {
			wr = side.e.datagram(side.from, side.to, wr)
		}
		if side.state == verbs.QPSErr || side.state == verbs.QPSSQE {
			s.must(side.from.PostSend(wr))
			same(s.T, "a send posted afterwards", s.poll(side.e.sendCQ, 1)[0].Status, verbs.WCWRFlushErr)
		}
		if side.state == verbs.QPSErr {
			s.must(side.from.PostRecv(side.e.recv(4, 0, 1)))
			same(s.T, "a receive posted afterwards", s.poll(side.e.rcvQ, 1)[0].Status, verbs.WCWRFlushErr)
		}
	}
}
