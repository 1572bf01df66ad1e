package engine

import (
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// ordered posts WRITEs to QPs and checks the order in which they complete.
type ordered struct {
	t        *testing.T
	qps      [2]*QP
	next     [2]uint64 // of the next post
	expected [2]uint64 // of the next completion
}

// post posts n WRITEs to each QP.
func (o *ordered) post(n int) {
	for i, qp := range o.qps {
		for range n {
			if err := postWrite(qp, uint64(i)<<32|o.next[i]); err != nil {
				o.t.Fatal(err)
			}
			o.next[i]++
		}
	}
}

// take checks a completion.
func (o *ordered) take(_ int, e *transport.CQE) {
	i, id := e.WRID>>32, e.WRID&(1<<32-1)
	if e.Status != transport.Success || id != o.expected[i] { // not fatal: a shard is held
		o.t.Errorf("QP %d: completion %d with status %d, want %d", i, id, e.Status, o.expected[i])
	}
	o.expected[i] = id + 1
}

func newOrdered(t *testing.T, m *manual, cq *CQ) *ordered {
	o := &ordered{t: t}
	for i := range o.qps {
		o.qps[i], _ = pair(t, m.Engine, cq, m.NewCQ(8, 0, silent{}))
	}
	return o
}

// Completions keep their order whether a poller catches them or reads them from the ring.
func TestCaughtCompletionsKeepTheirOrder(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(256, 0, silent{})
	o := newOrdered(t, m, cq)
	rng := rand.New(rand.NewPCG(1, 2))
	var left [2]int // completions taken by run and by pop
	for range 2000 {
		if free := 60 - int(o.next[0]-min(o.expected[0], o.expected[1])); free > 0 {
			o.post(rng.IntN(free + 1))
		}
		n := rng.IntN(80)
		switch rng.IntN(4) {
		case 0:
			m.Step()
		case 1: // as if the ring had filled after the poll has looked into it
			left[0] += cq.run(n, o.take)
		case 2:
			left[1] += cq.pop(n, 0, o.take)
		default:
			if got, err := cq.Poll(n, o.take); err != nil || got > n {
				t.Fatalf("%d of %d completions, error %v", got, n, err)
			}
		}
	}
	if left[0] == 0 || left[1] == 0 {
		t.Errorf("%d completions were caught and %d read: one way was not tested", left[0], left[1])
	}
}

// A poller catches nothing of a CQ whose ring holds older completions, even of the same shard.
func TestNothingIsCaughtBeforeOlderCompletions(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(256, 0, silent{})
	o := newOrdered(t, m, cq)
	o.post(3)
	m.stepUntilIdle(t)
	o.post(3)
	if got := cq.run(64, o.take); got != 0 {
		t.Errorf("%d completions were taken before 6 older ones", got)
	}
	m.stepUntilIdle(t)
	if got := cq.pop(64, 0, o.take); got != 12 {
		t.Errorf("%d completions in the ring, want 12", got)
	}
}

// A completion that comes while a poller runs the shard of an armed CQ raises the event, and keeps its order.
func TestPollOfAnArmedCQRaisesTheEvent(t *testing.T) {
	m := newManual(t, 1)
	b := newBell()
	cq := m.NewCQ(256, 0, b)
	o := newOrdered(t, m, cq)
	o.post(3) // the first disarms the CQ
	if err := cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	got := 0
	for n := 0; got < 6; n++ {
		k, err := cq.Poll(8, o.take)
		if got += k; err != nil || n > 100 {
			t.Fatalf("%d completions, error %v", got, err)
		}
	}
	select {
	case <-b.ring:
	default:
		t.Error("no event")
	}
}

// The slots of caught completions are free again.
func TestCaughtCompletionsFreeTheirSlots(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(256, 0, silent{})
	o := newOrdered(t, m, cq)
	for range 10 {
		o.post(64) // as many as a queue holds
		for got, n := 0, 0; got < 128; n++ {
			got += cq.run(64, o.take)
			got += cq.pop(64, 0, o.take)
			if n > 100 {
				t.Fatalf("%d of 128 completions", got)
			}
		}
	}
}

// The completion of a tag list operation that was posted while a poller runs the shard precedes that of the message
// which the operation's buffer takes.
func TestCaughtMessagesFollowTheirTagOperation(t *testing.T) {
	m := newManual(t, 1)
	cq, other := m.NewCQ(16, 0, silent{}), m.NewCQ(16, 0, silent{})
	srq := transport.NewRecvQueue(8, 1, true, 0)
	tags := srq.MatchTags(4, 4, 1, cq)
	from, to := new(QP), new(QP)
	from.setQueues(8)
	from.OwnSQ.Init(8, 1, 64)
	to.OwnSQ.Init(8+transport.OwnRequests, 1, 64)
	to.OwnSQ.OwnSlots()
	for qp, in := range map[*QP]QPInit{from: {RecvCQ: other}, to: {RecvCQ: cq, SRQ: srq}} {
		in.Type, in.SendCQ, in.Regions, in.Up = transport.RC, other, regions, silent{}
		if err := m.CreateQP(qp, in); err != nil {
			t.Fatal(err)
		}
	}
	connectQP(t, from, to.Num(), 14)
	connectQP(t, to, from.Num(), 14)
	s := to.shard
	var order []uint64
	take := func(_ int, e *transport.CQE) { order = append(order, e.WRID) }

	// What pollFor does, and another goroutine meanwhile.
	s.hold()
	s.caught.begin(cq, 8)
	add := transport.TagOp{WRID: 1, Op: transport.TagAdd, Signaled: true, RecvWRID: 2, Tag: 3, Mask: 1<<64 - 1}
	if err := tags.Do(&add); err != nil {
		t.Fatal(err)
	}
	from.SQ.Lock()
	w := from.SQ.Next()
	w.WRID, w.Op, w.Flags, w.Length = 4, transport.OpSend, transport.Inline, wire.TMHLen
	w.Inline = w.Inline[:wire.TMHLen]
	wire.TMH(w.Inline).Put(wire.TMEager, 0, 3)
	from.SQ.Commit()
	from.SQ.Publish()
	from.SQ.Unlock()
	s.runq.push(&from.QP)
	for range 4 {
		s.step(m.now)
	}
	got := s.caught.end(0, take)
	s.release()
	cq.pop(8-got, got, take)
	if len(order) != 2 || order[0] != 1 || order[1] != 2 {
		t.Errorf("completions of requests %d, want those of the operation and of the message, 1 and 2", order)
	}
}
