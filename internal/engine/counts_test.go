package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Consecutive counted requests to a QP are plain if all of them are. Those to the next QP stand for themselves.
func TestCountsArePlain(t *testing.T) {
	m := newManual(t, 1)
	a, b := pair(t, m.Engine, m.NewCQ(8, 0, silent{}), m.NewCQ(8, 0, silent{}))
	s := a.shard
	for i, c := range []struct {
		qp          *QP
		plain, want bool
	}{
		{a, true, true}, {a, true, true}, {a, false, false}, {a, true, false},
		{b, true, true}, {a, false, false}, {b, true, true},
	} {
		p := &link.RxPacket{Data: make([]byte, 64)}
		s.counts.add(s, &c.qp.QP, p, c.plain)
		if got := &s.counts; got.qp != &c.qp.QP || got.last != p || got.plain != c.want {
			t.Errorf("%d: plain: %v, want %v; QP %v", i, got.plain, c.want, got.qp == &c.qp.QP)
		}
	}
	s.counts = counts{}
}

// A batch does not keep the QPs of its acknowledgements from being collected.
func TestAcksAreForgotten(t *testing.T) {
	m := newManual(t, 1)
	a, b := pair(t, m.Engine, m.NewCQ(8, 0, silent{}), m.NewCQ(8, 0, silent{}))
	s := a.shard
	b.Destroy()
	acks := []link.Ack{{From: &a.QP, PSN: 5, Life: 1 << 30}, {From: &b.QP, PSN: 6, Life: 1 << 31}}
	s.rx.Acks = acks
	s.deliverAcks()
	for _, a := range acks {
		if a.From != nil {
			t.Errorf("%+v is kept", a)
		}
	}
}

type counter struct{ n int }

func (c *counter) Count(*link.Path, uint32) bool { c.n++; return true }

// A QP that has acknowledged a request by counting it takes a turn if it has something else to send. After a plain
// request that is not looked at: whoever gave it something to send says so.
func TestCountedRequestsAndTurns(t *testing.T) {
	m := newManual(t, 1)
	qp, _ := pair(t, m.Engine, m.NewCQ(8, 0, silent{}), m.NewCQ(8, 0, silent{}))
	s := qp.shard
	direct := s.tx.Direct
	s.tx.Direct = &full{}
	defer func() { s.tx.Direct = direct }()
	mem := region(t, 64)
	var c counter
	arrives := func(op wire.Opcode, seq uint32, turn bool) {
		t.Helper()
		b := make([]byte, wire.BTHLen+4)
		wire.BTH(b).Put(op, 0, 0xffff, qp.Num(), seq, wire.BTHAckReq)
		if err := qp.RQ.Post(1, []transport.SGE{{Addr: mem.Base, Length: 4, LKey: mem.LKey}}); err != nil {
			t.Fatal(err)
		}
		s.deliver(&link.RxPacket{Data: b, Src: localAddr, Dst: localAddr, Counter: &c})
		before := c.n
		if s.count(); c.n != before+1 {
			t.Fatalf("request %d was not counted", seq)
		}
		if got := s.runq.pop() == &qp.QP; got != turn {
			t.Errorf("after request %d the QP takes a turn: %t, want %t", seq, got, turn)
		}
	}
	s.hold()
	defer s.release()
	arrives(wire.RC|wire.SendOnlyImm, 0, false)
	arrives(wire.RC|wire.SendOnly, 1, false)
	postSilently(qp)
	arrives(wire.RC|wire.SendOnly, 2, false)
	arrives(wire.RC|wire.SendOnlyImm, 3, true)
}
