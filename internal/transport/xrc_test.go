package transport

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// domain returns the stage's XRC domain.
func (s *stage) domain() *XRCD {
	if s.xrcd == nil {
		s.xrcd, s.srqs = NewXRCD(), map[int]*XRCSRQ{}
	}
	return s.xrcd
}

// addSRQ adds an SRQ to the domain: srq NUMBER [recvs=16] [pd=7].
func (s *stage) addSRQ(a *args) {
	num := number(a.word(0))
	q := &XRCSRQ{
		Num: uint32(num), Queue: NewRecvQueue(a.num("recvs", 16), 4, true, uint32(a.num("pd", stagePD))),
		CQ: pushFunc(func(e *CQE) {
			s.logf("in the CQ of SRQ %d, from QP %#x:", num, e.QPN)
			s.Push(e)
		}),
	}
	s.domain().Add(q)
	s.srqs[num] = q
}

func TestDomainForgetsARemovedSRQ(t *testing.T) {
	d := NewXRCD()
	a, b := &XRCSRQ{Num: 5}, &XRCSRQ{Num: 6}
	d.Add(a)
	d.Add(b)
	d.Remove(a)
	if d.find(5) != nil || d.find(6) != b || len(d.srqs) != 1 {
		t.Errorf("%v", d.srqs)
	}
}

// A QP in RESET holds no SRQ, which may be destroyed and replaced before the QP is used again.
func TestResetForgetsTheSRQ(t *testing.T) {
	s := play(t, "qp xrc", "srq 5", "region A", "recv 1 A+0/10 srq=5", "in SEND_ONLY psn=100 srqn=5 data=a")
	if s.qp.XRCSRQ() != s.srqs[5] {
		t.Fatalf("SRQ %v of the last message", s.qp.XRCSRQ())
	}
	if err := s.doLine("modify reset"); err != nil {
		t.Fatal(err)
	}
	if r := &s.qp.resp; s.qp.XRCSRQ() != nil || r.rq != nil || r.cq != nil || r.pd != 0 {
		t.Errorf("%v, queue %v, CQ %v, PD %d", s.qp.XRCSRQ(), r.rq, r.cq, r.pd)
	}
}

// Every request packet of an XRC connection has an XRCETH with the SRQ of its work request.
func TestV_SEND_15_EveryRequestNamesTheSRQ(t *testing.T) {
	const srqn = 0xABCDE
	for _, op := range []Op{OpSend, OpSendImm, OpSendInv, OpWrite, OpWriteImm, OpRead, OpCmpSwap, OpFetchAdd} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			s := newSender(t, XRCSend, func(c *Config, _ *Attr) { c.RQ, c.RecvCQ = nil, nil })
			for i, n := range []int{8, 3500} {
				if w := (SendWQE{Op: op}); w.isAtomic() {
					n = 8
				}
				s.post(op, s.sges(0, n), func(w *SendWQE) { s.qp.SQ.More(w).RemoteSRQN = srqn + uint32(i) })
			}
			seen := map[uint32]int{}
			for _, p := range s.out() {
				if p.Opcode().Transport() != 0xA0 {
					t.Errorf("%v is no XRC opcode", p.Opcode())
				}
				if p.XRCETH() == nil {
					t.Fatalf("%v has no XRCETH", p.Opcode())
				}
				seen[p.XRCETH().SRQN()]++
			}
			want := map[Op]int{OpRead: 1, OpCmpSwap: 1, OpFetchAdd: 1}[op]
			if want == 0 {
				want = 4
			}
			if seen[srqn] != 1 || seen[srqn+1] != want || len(seen) != 2 {
				t.Errorf("packets by SRQ: %v", seen)
			}
		})
	}
}

// No response has an XRCETH.
func TestV_SEND_15_NoAnswerNamesTheSRQ(t *testing.T) {
	s := play(t, "qp xrc", "srq 5", "region A")
	answers := 0
	s.shown = func(p wire.Packet) {
		answers++
		if op := p.Opcode(); op.Transport() != wire.XRC || !op.Is(wire.Response) || p.XRCETH() != nil {
			t.Errorf("answer %v", p)
		}
	}
	for _, l := range []string{
		"in SEND_ONLY psn=100 ackreq srqn=5 data=a", "recv 1 A+0/10 srq=5", "in SEND_ONLY psn=100 ackreq srqn=5 data=a",
		"in READ psn=101 srqn=5 at=A+0/1000", "in FETCH_ADD psn=105 srqn=5 at=A+0/8 add=1",
		"in WRITE_ONLY psn=106 srqn=5 ackreq at=A+0/1 data=ab",
	} {
		if err := s.doLine(l); err != nil {
			t.Fatal(err)
		}
	}
	if answers != 8 {
		t.Errorf("%d answers", answers)
	}
}
