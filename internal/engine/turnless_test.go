package engine

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// An acknowledgement after which the QP has nothing to send costs no turn of the run queue. Its timer ends, unless
// other requests wait for an acknowledgement. If there is more to send, the QP takes a turn.
func TestAckNeedsNoTurn(t *testing.T) {
	m := newManual(t, 1)
	qp, _ := pair(t, m.Engine, m.NewCQ(64, 0, silent{}), m.NewCQ(64, 0, silent{}))
	s := qp.shard
	for range 3 {
		if err := postWrite(qp, 1); err != nil {
			t.Fatal(err)
		}
	}
	ack := func(seq uint32, turn, timer bool) {
		t.Helper()
		m.now += 2 * timerStays // it does not stay armed
		s.now = m.now
		b := make([]byte, wire.BTHLen+wire.AETHLen)
		wire.BTH(b).Put(wire.RC|wire.Ack, 0, 0xffff, qp.Num(), seq, 0)
		wire.AETH(b[wire.BTHLen:]).Put(wire.SynAck, seq)
		s.deliver(&link.RxPacket{Data: b, Src: localAddr, Dst: localAddr})
		if got := s.runq.first == &qp.QP; got != turn {
			t.Errorf("after the acknowledgement of PSN %d the QP takes a turn: %t, want %t", seq, got, turn)
		}
		if got := qp.Sched.TimerSlot != 0; got != timer {
			t.Errorf("after the acknowledgement of PSN %d the timer runs: %t, want %t", seq, got, timer)
		}
	}
	ack(0, false, true)
	ack(2, false, false)
	postSilently(qp)
	ack(2, true, false)
	m.stepUntilIdle(t)
	if s.runq.first != nil || qp.SQ.Posted() != 4 {
		t.Error("the fourth request has not had its turn")
	}
}
