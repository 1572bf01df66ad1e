package engine

import (
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// moderated is a CQ of a manual engine with a QP that completes into it.
func moderated(t *testing.T) (*manual, *CQ, *counting, func(n int)) {
	t.Helper()
	m := newManual(t, 2)
	up := &counting{}
	cq := m.NewCQ(64, 0, up)
	qa, _ := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
	return m, cq, up, func(n int) {
		t.Helper()
		for range n {
			if err := postWrite(qa, 1); err != nil {
				t.Fatal(err)
			}
		}
		m.stepUntilIdle(t)
	}
}

func wantEvents(t *testing.T, up *counting, n int, when string) {
	t.Helper()
	if up.completions != n {
		t.Fatalf("%s: %d events, want %d", when, up.completions, n)
	}
}

func arm(t *testing.T, cq *CQ) {
	t.Helper()
	if err := cq.Arm(false); err != nil {
		t.Fatal(err)
	}
}

func TestX_CQ_01_EventAfterCount(t *testing.T) {
	m, cq, up, write := moderated(t)
	cq.Moderate(3, 0)
	write(2) // before the request: they do not count (V-NTF-02)
	arm(t, cq)
	write(2)
	wantEvents(t, up, 0, "two of three completions")
	m.now += int64(time.Hour)
	m.stepUntilIdle(t)
	wantEvents(t, up, 0, "no period, so however late")
	pollIDs(t, cq, 64)
	arm(t, cq) // again: what was counted stays
	write(1)
	wantEvents(t, up, 1, "the third completion")
	write(5)
	wantEvents(t, up, 1, "not armed")
	arm(t, cq)
	write(2)
	wantEvents(t, up, 1, "counted anew")
	write(1)
	wantEvents(t, up, 2, "three more")
}

func TestX_CQ_01_EventAfterPeriod(t *testing.T) {
	const period = 50 * time.Microsecond
	for _, count := range []uint16{0, 0xffff} {
		m, cq, up, write := moderated(t)
		cq.Moderate(count, period)
		for round := range 3 {
			arm(t, cq)
			m.now += int64(time.Second)
			m.stepUntilIdle(t)
			wantEvents(t, up, round, "nothing has completed")
			write(1)
			first := m.now
			m.now += int64(period) - 1
			write(1)
			wantEvents(t, up, round, "one nanosecond early")
			if next := m.NextDeadline(); next > first+int64(period) {
				t.Fatalf("the engine sleeps until %d, the event is due at %d", next, first+int64(period))
			}
			m.now++
			m.stepUntilIdle(t)
			wantEvents(t, up, round+1, "the period is over")
			pollIDs(t, cq, 64)
		}
		m.now += int64(time.Second) // the timer of the ACKs
		m.stepUntilIdle(t)
		if d := m.NextDeadline(); d != Never {
			t.Errorf("the engine still waits for %d", d)
		}
	}
}

func TestX_CQ_01_CountBeforePeriod(t *testing.T) {
	m, cq, up, write := moderated(t)
	cq.Moderate(2, time.Millisecond)
	arm(t, cq)
	write(2)
	wantEvents(t, up, 1, "the count came first")
	arm(t, cq)
	m.now += int64(time.Millisecond)
	m.stepUntilIdle(t)
	wantEvents(t, up, 1, "the old period means nothing")
	write(1)
	m.now += int64(time.Millisecond)
	m.stepUntilIdle(t)
	wantEvents(t, up, 2, "the new period is over")
}

func TestV_CQ_18_NoModeration(t *testing.T) {
	for _, count := range []uint16{0, 1} {
		_, cq, up, write := moderated(t)
		cq.Moderate(count, 0)
		arm(t, cq)
		write(1)
		wantEvents(t, up, 1, "no moderation")
	}
}

func TestV_CQ_18_ChangeReleasesAHeldEvent(t *testing.T) {
	_, cq, up, write := moderated(t)
	cq.Moderate(9, time.Hour)
	cq.Moderate(8, time.Hour)
	arm(t, cq)
	wantEvents(t, up, 0, "nothing is held")
	write(3)
	cq.Moderate(0, 0)
	wantEvents(t, up, 1, "moderation is off")
	write(1)
	wantEvents(t, up, 1, "one request, one event")
}

// A shorter period is kept although the shard waits for a longer one.
func TestV_CQ_18_ShorterPeriod(t *testing.T) {
	m, cq, up, write := moderated(t)
	cq.Moderate(0, time.Hour)
	arm(t, cq)
	write(1)
	cq.Moderate(0, time.Millisecond)
	wantEvents(t, up, 1, "a change releases")
	arm(t, cq)
	write(1)
	m.now += int64(time.Millisecond)
	m.stepUntilIdle(t)
	wantEvents(t, up, 2, "the new period is over")
}

// Two shards complete into one CQ: either keeps the time, for one event.
func TestX_CQ_01_SeveralShards(t *testing.T) {
	m := newManual(t, 2)
	up := &counting{}
	cq := m.NewCQ(64, 0, up)
	var qps []*QP
	for vector := range 2 { // receives, of which there are none, decide the shard
		qp, err := m.newQP(QPInit{
			Type: transport.RC, SendCQ: cq, RecvCQ: m.NewCQ(64, 1+vector, silent{}), Regions: regions, Up: silent{},
		})
		if err != nil {
			t.Fatal(err)
		}
		qps = append(qps, qp)
	}
	qa, qb := qps[0], qps[1]
	connectQP(t, qa, qb.Num(), 14)
	connectQP(t, qb, qa.Num(), 14)
	if qa.shard == qb.shard {
		t.Fatal("the QPs share a shard")
	}
	cq.Moderate(0, time.Millisecond)
	for round := range 4 {
		arm(t, cq)
		for _, qp := range []*QP{qa, qb} {
			if round%2 == 0 && qp == qa {
				continue
			}
			if err := postWrite(qp, 1); err != nil {
				t.Fatal(err)
			}
		}
		m.stepUntilIdle(t)
		wantEvents(t, up, round, "held")
		m.now += int64(time.Millisecond)
		m.stepUntilIdle(t)
		wantEvents(t, up, round+1, "over")
	}
}

// The background goroutines keep the time while the program sleeps.
func TestX_CQ_01_SleepingProgram(t *testing.T) {
	e := testEngine(t, 2, Config{})
	b := newBell()
	cq := e.NewCQ(256, 0, b)
	qa, _ := pair(t, e, cq, e.NewCQ(256, 0, silent{}))
	const period = 30 * time.Millisecond
	cq.Moderate(0, period)
	for range 3 {
		arm(t, cq)
		start := time.Now()
		if err := postWrite(qa, 1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-b.ring:
		case <-time.After(10 * time.Second):
			t.Fatal("no event")
		}
		if d := time.Since(start); d < period {
			t.Errorf("the event came after %v, want %v at least", d, period)
		}
		pollIDs(t, cq, 8)
	}
}

func TestV_CQX_05_IgnoreOverrun(t *testing.T) {
	cq, up := testCQ(t, 2)
	cq.IgnoreOverrun()
	qp := testQP(17)
	for range 8 {
		if err := qp.RQ.Post(1, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(8) {
		cq.Push(recvCQE(qp, i))
	}
	wantIDs(t, pollIDs(t, cq, 5), 6, 7)
	if up.errors != 0 {
		t.Errorf("%d errors", up.errors)
	}
	for range 8 { // the places of the lost ones are free too
		if err := qp.RQ.Post(1, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// Times stay with their completions when the ring turns, grows and loses some.
func TestV_CQX_13_TimesStayWithTheirCompletions(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(4, 0, silent{})
	cq.KeepTimes()
	a, b := testQP(17), testQP(18)
	push := func(qp *transport.QP, id uint64) {
		m.now = int64(id) * 100
		cq.Push(recvCQE(qp, id))
	}
	next := func(more bool, want uint64) {
		t.Helper()
		e, s, err := cq.Next(more)
		if e == nil || err != nil {
			t.Fatal(e, err)
		}
		if e.WRID != want || s.Clock != int64(want)*100 || time.Since(time.Unix(0, s.Wall)).Abs() > time.Minute {
			t.Errorf("completion %d at %+v, want %d", e.WRID, s, want)
		}
	}
	for i := range uint64(3) {
		push(a, i)
		next(false, i)
	}
	push(a, 3)
	push(b, 4)
	push(a, 5)
	if err := cq.Resize(8); err != nil {
		t.Fatal(err)
	}
	cq.purge(b)
	push(a, 6)
	next(false, 3)
	next(true, 5)
	next(true, 6)
	for _, more := range []bool{true, false} {
		if e, _, err := cq.Next(more); e != nil || err != nil {
			t.Error(e, err)
		}
	}
}
