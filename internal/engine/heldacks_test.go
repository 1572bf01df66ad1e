package engine

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// rally is two connected QPs on shards of their own, whose programs poll and answer messages.
type rally struct {
	t      *testing.T
	e      *Engine
	qa, qb *QP
	a, b   *CQ
}

func newRally(t *testing.T, e *Engine) *rally {
	r := &rally{t: t, e: e, a: e.NewCQ(64, 1, silent{}), b: e.NewCQ(64, 2, silent{})}
	r.qa, r.qb = pair(t, e, r.a, r.b)
	if r.qa.shard == r.qb.shard {
		t.Fatal("one shard for both QPs")
	}
	return r
}

func (r *rally) post(qp *QP) {
	r.t.Helper()
	if err := postWrite(qp, 1); err != nil {
		r.t.Fatal(err)
	}
}

func poll(t testing.TB, cq *CQ) int {
	t.Helper()
	n, err := cq.Poll(64, func(int, *transport.CQE) {})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// round is a message and its answer, both taken by a poll.
func (r *rally) round() {
	r.post(r.qa)
	poll(r.t, r.b)
	r.post(r.qb)
	poll(r.t, r.a)
}

// sent returns the number of packets that the shard of a QP has sent.
func (r *rally) sent(qp *QP) uint64 { return r.e.ShardCounters(qp.shard.index).Port.TxPackets }

// holding plays until b's program is known to answer, and ends with a message whose acknowledgement b holds.
func (r *rally) holding() {
	r.t.Helper()
	for range maxAnswers {
		r.round()
	}
	r.post(r.qa)
	before := r.sent(r.qb)
	poll(r.t, r.b)
	if n := r.sent(r.qb) - before; n != 0 {
		r.t.Fatalf("%d packets before the answer, want the acknowledgement to be held", n)
	}
}

func manualRally(t *testing.T) (*rally, *manual) {
	m := newManual(t, 4)
	return newRally(t, m.Engine), m
}

func TestAcknowledgementLeavesWithTheAnswer(t *testing.T) {
	r, _ := manualRally(t)
	r.holding()
	before := r.sent(r.qb)
	r.post(r.qb)
	if n := r.sent(r.qb) - before; n != 2 {
		t.Errorf("%d packets with the answer, want answer and acknowledgement", n)
	}
	if n := poll(t, r.a); n == 0 {
		t.Error("no completion of the request")
	}
	if r.qb.shard.acks.n != 0 || r.e.ShardCounters(r.qb.shard.index).QP.RetransmitPackets != 0 {
		t.Error("the acknowledgement is still held, or a packet was retransmitted")
	}
}

// A program that is about to exit sees that an acknowledgement is held until it has been sent.
func TestHeldAcknowledgementsAreCounted(t *testing.T) {
	for name, end := range map[string]func(*rally, *manual){
		"the answer":    func(r *rally, _ *manual) { r.post(r.qb) },
		"the next poll": func(r *rally, m *manual) { m.now += graceTime; poll(t, r.b) },
		"the end":       func(r *rally, _ *manual) { r.qb.shard.acks.forget() },
	} {
		r, m := manualRally(t)
		before := Owed().Load()
		r.holding()
		if n := Owed().Load() - before; n != 1 {
			t.Errorf("%s: %d are held, want 1", name, n)
		}
		if end(r, m); Owed().Load() != before {
			t.Errorf("%d are held after %s, want 0", Owed().Load()-before, name)
		}
	}
}

// A program that polls another CQ before it answers, or the same one again, still sends the acknowledgement with the
// answer.
func TestHeldAcknowledgementOutlastsAPoll(t *testing.T) {
	r, m := manualRally(t)
	r.holding()
	before := r.sent(r.qb)
	m.now += graceTime - 1
	poll(t, r.b)
	if n := r.sent(r.qb) - before; n != 0 {
		t.Errorf("%d packets at the next poll, want none", n)
	}
	r.post(r.qb)
	if n := r.sent(r.qb) - before; n != 2 {
		t.Errorf("%d packets with the answer, want answer and acknowledgement", n)
	}
}

// Without an answer the acknowledgement leaves at the first poll after graceTime, even if that finds another packet.
func TestHeldAcknowledgementLeavesAtTheNextPoll(t *testing.T) {
	for name, more := range map[string]bool{"nothing": false, "a packet": true} {
		t.Run(name, func(t *testing.T) {
			r, m := manualRally(t)
			r.holding()
			if more {
				r.post(r.qa)
			}
			before := r.sent(r.qb)
			m.now += graceTime
			poll(t, r.b)
			if n := r.sent(r.qb) - before; n != 1 {
				t.Errorf("%d packets at the next poll, want the acknowledgement", n)
			}
		})
	}
}

// If the program stops polling, the acknowledgement leaves at a deadline of the shard.
func TestHeldAcknowledgementHasADeadline(t *testing.T) {
	r, m := manualRally(t)
	r.holding()
	if d := m.NextDeadline(); d != m.now+holdTime {
		t.Fatalf("the next deadline is in %d ns, want %d", d-m.now, holdTime)
	}
	before := r.sent(r.qb)
	m.now += holdTime
	m.stepUntilIdle(t)
	if n := r.sent(r.qb) - before; n != 1 {
		t.Errorf("%d packets at the deadline, want the acknowledgement", n)
	}
	if n := poll(t, r.a); n == 0 {
		t.Error("no completion of the request")
	}
}

// A program that does not answer, or answers late, gets no acknowledgement held; one that begins to answer does.
func TestOnlyAnswersAreWaitedFor(t *testing.T) {
	r, m := manualRally(t)
	r.holding()
	held := func() bool {
		r.post(r.qa)
		before := r.sent(r.qb)
		poll(t, r.b)
		return r.sent(r.qb) == before
	}
	for range maxAnswers / noAnswer {
		held()
		poll(t, r.b) // no answer
		poll(t, r.a)
	}
	if held() {
		t.Error("held for a program that does not answer")
	}
	for range 2 * maxAnswers {
		m.now += 2 * holdTime
		r.post(r.qb) // late
		poll(t, r.a)
		if held() {
			t.Fatal("held for a program that answers late")
		}
	}
	r.post(r.qb)
	poll(t, r.a)
	r.holding()
}

// A QP that is reset or destroyed sends the acknowledgement first.
func TestHeldAcknowledgementOfADestroyedQP(t *testing.T) {
	for name, end := range map[string]func(qp *QP) error{
		"reset": func(qp *QP) error {
			return qp.Modify(&transport.Attr{State: transport.Reset}, transport.MaskState)
		},
		"destroy": func(qp *QP) error { qp.Destroy(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r, m := manualRally(t)
			r.holding()
			before := r.sent(r.qb)
			if err := end(r.qb); err != nil {
				t.Fatal(err)
			}
			if n := r.sent(r.qb) - before; n != 1 {
				t.Errorf("%d packets, want the acknowledgement", n)
			}
			m.now += holdTime
			m.stepUntilIdle(t)
			if n := poll(t, r.a); n == 0 {
				t.Error("no completion of the request")
			}
		})
	}
}

// More QPs than maxHeld: the acknowledgements of the others leave at once, none is lost.
func TestManyHeldAcknowledgements(t *testing.T) {
	m := newManual(t, 4)
	a, b := m.NewCQ(256, 1, silent{}), m.NewCQ(256, 2, silent{})
	var as, bs []*QP
	for range 2 * maxHeld {
		qa, qb := pair(t, m.Engine, a, b)
		as, bs = append(as, qa), append(bs, qb)
	}
	all := func(qps []*QP) {
		for _, qp := range qps {
			if err := postWrite(qp, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	done := 0
	for range maxAnswers {
		all(as)
		poll(t, b)
		all(bs)
		done += poll(t, a)
	}
	all(as)
	poll(t, b)
	if n := bs[0].shard.acks.n; n != maxHeld {
		t.Errorf("%d acknowledgements are held, want %d", n, maxHeld)
	}
	for range 4 {
		m.now += graceTime
		poll(t, b)
		done += poll(t, a)
	}
	if want := (maxAnswers + 1) * len(as); done != want {
		t.Errorf("%d requests completed, want %d", done, want)
	}
}

// The background goroutine sends the acknowledgements of a program that stops polling.
func TestBackgroundSendsHeldAcknowledgement(t *testing.T) {
	r := newRally(t, testEngine(t, 4, Config{}))
	until := func(what string, done func() bool) {
		t.Helper()
		for start := time.Now(); !done(); {
			if time.Since(start) > 20*time.Second {
				t.Fatal("no ", what)
			}
		}
	}
	completed := func(cq *CQ) func() bool { return func() bool { return poll(t, cq) > 0 } }
	arrived := uint64(0)
	message := func() {
		r.post(r.qa)
		arrived++
		until("message", func() bool {
			poll(t, r.b)
			return r.qb.Counters().RxWriteRequests == arrived
		})
	}
	for range 20 {
		for range maxAnswers {
			message()
			r.post(r.qb)
			until("completion of the answer", completed(r.b))
			until("completion", completed(r.a))
		}
		message()
		until("completion although the background goroutine runs", completed(r.a))
	}
}
