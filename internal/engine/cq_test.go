package engine

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// counting counts upcalls.
type counting struct{ completions, errors int }

func (c *counting) Completion() { c.completions++ }
func (c *counting) Error()      { c.errors++ }

func testCQ(t testing.TB, cqe int) (*CQ, *counting) {
	up := &counting{}
	return (&Engine{now: func() int64 { return 0 }, manual: true}).NewCQ(cqe, 0, up), up
}

func testQP(num uint32) *transport.QP {
	qp := new(QP)
	qp.setQueues(8)
	qp.Init(transport.Config{Num: num, Type: transport.RC, SQ: &qp.OwnSQ, RQ: &qp.OwnRQ})
	return &qp.QP
}

func recvCQE(qp *transport.QP, wrid uint64) *transport.CQE {
	return &transport.CQE{WRID: wrid, Op: transport.CQRecv, QPN: qp.Num, QP: qp, RQ: qp.RQ}
}

func pollIDs(t *testing.T, cq *CQ, n int) (ids []uint64) {
	t.Helper()
	got, err := cq.Poll(n, func(i int, e *transport.CQE) {
		if i != len(ids) {
			t.Errorf("entry %d has number %d", len(ids), i)
		}
		ids = append(ids, e.WRID)
	})
	if err != nil || got != len(ids) {
		t.Fatalf("Poll: %d, %v with %d entries", got, err, len(ids))
	}
	return ids
}

func wantIDs(t *testing.T, got []uint64, want ...uint64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

func TestV_CQ_01_ActualSizeIsNotBelowTheRequest(t *testing.T) {
	for _, n := range []int{1, 2, 3, 63, 64, 65, 1000} {
		if cq, _ := testCQ(t, n); cq.Cap() < n {
			t.Errorf("asked for %d, got %d", n, cq.Cap())
		}
	}
}

func TestV_POLL_01_OldestFirstAndAllThereAre(t *testing.T) {
	cq, _ := testCQ(t, 4)
	qp := testQP(17)
	for round := range uint64(10) { // the ring wraps around
		for i := range uint64(3) {
			cq.Push(recvCQE(qp, 10*round+i))
		}
		wantIDs(t, pollIDs(t, cq, 2), 10*round, 10*round+1)
		wantIDs(t, pollIDs(t, cq, 5), 10*round+2)
		wantIDs(t, pollIDs(t, cq, 5))
	}
}

func TestV_GEN_06_PollingFreesQueueSlots(t *testing.T) {
	cq, _ := testCQ(t, 16)
	qp := testQP(17)
	sge := []transport.SGE{{}}
	for range 8 {
		if err := qp.RQ.Post(1, sge); err != nil {
			t.Fatal(err)
		}
		qp.SQ.Lock()
		if qp.SQ.Next() == nil {
			t.Fatal("send queue full too early")
		}
		qp.SQ.Commit()
		qp.SQ.Publish()
		qp.SQ.Unlock()
	}
	cq.Push(recvCQE(qp, 1))
	cq.Push(&transport.CQE{QP: qp, Send: true, Slot: 2}) // stands for slots 0 to 2
	if err := qp.RQ.Post(1, sge); !errors.Is(err, transport.ErrQueueFull) {
		t.Fatalf("posted before the completion was polled: %v", err)
	}
	pollIDs(t, cq, 2)
	if err := qp.RQ.Post(1, sge); err != nil {
		t.Fatalf("the polled receive's slot is not free: %v", err)
	}
	free := 0
	for ; qp.SQ.Next() != nil; free++ {
		qp.SQ.Commit()
	}
	if free != 3 {
		t.Fatalf("%d send slots free, want 3", free)
	}
}

func TestV_NTF_01_OneRequestOneEvent(t *testing.T) {
	cq, up := testCQ(t, 8)
	qp := testQP(17)
	cq.Push(recvCQE(qp, 1))
	if up.completions != 0 {
		t.Fatal("event without a request")
	}
	if err := cq.Arm(false); err != nil {
		t.Fatal(err)
	}
	if up.completions != 0 { // V-NTF-02
		t.Fatal("event for a completion that was there before the request")
	}
	cq.Push(recvCQE(qp, 2))
	cq.Push(recvCQE(qp, 3))
	if up.completions != 1 { // V-NTF-05
		t.Fatalf("%d events for one request, want 1", up.completions)
	}
}

func TestV_NTF_04_SolicitedOnly(t *testing.T) {
	cases := []struct {
		name string
		e    transport.CQE
		want int
	}{
		{"receive", transport.CQE{Op: transport.CQRecv}, 0},
		{"send", transport.CQE{Op: transport.CQSend, Send: true}, 0},
		{"solicited receive", transport.CQE{Op: transport.CQRecv, Solicited: true}, 1},
		{"failed receive", transport.CQE{Op: transport.CQRecv, Status: transport.WRFlushErr}, 1},
		{"failed send", transport.CQE{Send: true, Status: transport.RetryExcErr}, 1},
	}
	for _, c := range cases {
		cq, up := testCQ(t, 8)
		cq.Arm(true)
		c.e.QP = testQP(17)
		cq.Push(&c.e)
		if up.completions != c.want {
			t.Errorf("%s: %d events, want %d", c.name, up.completions, c.want)
		}
	}
}

func TestV_NTF_04_SolicitedDoesNotWeakenNext(t *testing.T) {
	cq, up := testCQ(t, 8)
	cq.Arm(false)
	cq.Arm(true)
	cq.Push(recvCQE(testQP(17), 1))
	if up.completions != 1 {
		t.Fatal("the request for the next completion was forgotten")
	}
	cq.Arm(true)
	cq.Arm(false)
	cq.Push(recvCQE(testQP(17), 2))
	if up.completions != 2 {
		t.Fatal("the request was not widened to the next completion")
	}
}

func TestV_CQ_07_Overrun(t *testing.T) {
	cq, up := testCQ(t, 2)
	qp := testQP(17)
	cq.Push(recvCQE(qp, 1))
	cq.Push(recvCQE(qp, 2))
	if err := cq.Arm(true); err != nil {
		t.Fatal(err)
	}
	cq.Push(recvCQE(qp, 3))
	cq.Push(recvCQE(qp, 4))
	if up.errors != 1 || up.completions != 1 {
		t.Fatalf("%d error and %d completion upcalls, want one of each", up.errors, up.completions)
	}
	wantIDs(t, pollIDs(t, cq, 5), 1, 2) // D-45: what came before may still be polled
	if n, err := cq.Poll(5, nil); n != 0 || !errors.Is(err, ErrCQOverrun) {
		t.Fatalf("Poll of the broken CQ: %d, %v", n, err)
	}
	cq.Push(recvCQE(qp, 5))
	if n, err := cq.Poll(5, nil); n != 0 || !errors.Is(err, ErrCQOverrun) {
		t.Fatalf("the broken CQ took a completion: %d, %v", n, err)
	}
	if err := cq.Arm(false); !errors.Is(err, ErrCQOverrun) {
		t.Fatalf("Arm: %v", err)
	}
}

func TestV_CQ_09_ResizeKeepsEntries(t *testing.T) {
	qp := testQP(17)
	for _, size := range []int{3, 4, 100} {
		cq, _ := testCQ(t, 4)
		for i := range uint64(4) { // so that the content wraps around
			cq.Push(recvCQE(qp, i))
		}
		pollIDs(t, cq, 3)
		cq.Push(recvCQE(qp, 4))
		cq.Push(recvCQE(qp, 5))
		if err := cq.Resize(size); err != nil {
			t.Fatal(err)
		}
		if cq.Cap() < size { // V-CQ-14
			t.Errorf("resized to %d: %d", size, cq.Cap())
		}
		wantIDs(t, pollIDs(t, cq, 10), 3, 4, 5)
		for i := range uint64(size) {
			cq.Push(recvCQE(qp, i))
		}
		if got := pollIDs(t, cq, 1000); len(got) != size {
			t.Errorf("resized to %d: holds %d", size, len(got))
		}
	}
}

func TestV_CQ_10_ResizeKeepsTheRequest(t *testing.T) {
	cq, up := testCQ(t, 4)
	cq.Arm(false)
	if err := cq.Resize(50); err != nil {
		t.Fatal(err)
	}
	cq.Push(recvCQE(testQP(17), 1))
	if up.completions != 1 {
		t.Fatal("the notification request was lost")
	}
}

// Requests count that were posted while another goroutine held the shard.
func TestV_CQ_12_ResizeBelowThePostedRequests(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(16, 0, silent{})
	qp := newQP(t, m.Engine, cq, silent{})
	if err := qp.Modify(&transport.Attr{State: transport.Err}, transport.MaskState); err != nil {
		t.Fatal(err)
	}
	m.shards[0].held.Store(busy)
	for id := range uint64(4) {
		if err := postWrite(qp, id); err != nil {
			t.Fatal(err)
		}
	}
	m.shards[0].held.Store(free)
	if err := cq.Resize(2); !errors.Is(err, ErrCQTooFew) {
		t.Errorf("4 requests were posted, resized to 2: %v", err)
	}
}

// They count too if a third goroutine waits for the shard: the work is left to that one otherwise.
func TestV_CQ_12_ResizeBesideAnotherWaiter(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(16, 0, silent{})
	qp := newQP(t, m.Engine, cq, silent{})
	if err := qp.Modify(&transport.Attr{State: transport.Err}, transport.MaskState); err != nil {
		t.Fatal(err)
	}
	m.shards[0].waiters.Store(1)
	defer m.shards[0].waiters.Store(0)
	for id := range uint64(4) {
		if err := postWrite(qp, id); err != nil {
			t.Fatal(err)
		}
	}
	if err := cq.Resize(2); !errors.Is(err, ErrCQTooFew) {
		t.Errorf("4 requests were posted, resized to 2: %v", err)
	}
}

func TestV_CQ_12_ResizeBelowTheContent(t *testing.T) {
	cq, _ := testCQ(t, 8)
	qp := testQP(17)
	for i := range uint64(5) {
		cq.Push(recvCQE(qp, i))
	}
	if err := cq.Resize(4); !errors.Is(err, ErrCQTooFew) {
		t.Fatalf("Resize: %v", err)
	}
	if cq.Cap() != 8 { // V-CQ-15
		t.Fatalf("the failed Resize changed the size to %d", cq.Cap())
	}
	wantIDs(t, pollIDs(t, cq, 8), 0, 1, 2, 3, 4)
}

func TestV_QPS_03_PurgeTakesOneQPsCompletionsOnly(t *testing.T) {
	cq, _ := testCQ(t, 8)
	a, b := testQP(17), testQP(18)
	srq := transport.NewRecvQueue(2, 1, true, 0)
	for range 2 {
		srq.Post(1, nil)
	}
	for i := range uint64(3) { // so that the content wraps around
		cq.Push(recvCQE(b, i))
	}
	pollIDs(t, cq, 3)
	for i := range uint64(3) {
		cq.Push(recvCQE(a, 10+i))
		cq.Push(recvCQE(b, 20+i))
	}
	shared := recvCQE(a, 30)
	shared.RQ = srq
	cq.Push(shared)
	cq.purge(a)
	wantIDs(t, pollIDs(t, cq, 8), 20, 21, 22)
	if err := srq.Post(1, nil); err != nil {
		t.Errorf("the purged completion still holds its place in the SRQ: %v", err)
	}
	if n := held(t, cq); n != 0 {
		t.Errorf("%d completions are left", n)
	}
}

// held is how many completions cq holds; what a look without the lock says of them must be true.
func held(t *testing.T, cq *CQ) int {
	t.Helper()
	cq.mu.Lock()
	defer cq.mu.Unlock()
	n := int(cq.tail - cq.head)
	if some := cq.some.Load(); some != (n > 0) {
		t.Errorf("%d completions in the ring, but some is %v", n, some)
	}
	if b := cq.batch.Load(); b != nil {
		n += b.n - b.at
	}
	return n
}

// Whether a CQ holds something is seen without its lock, whatever put it in or took it away.
func TestCQSome(t *testing.T) {
	cq, _ := testCQ(t, 4)
	a := testQP(17)
	push := func() { cq.Push(recvCQE(a, 1)) }
	want := func(after string, n int) {
		t.Helper()
		if got := held(t, cq); got != n {
			t.Errorf("after %s: %d completions, want %d", after, got, n)
		}
	}
	one := func() {
		if _, _, err := cq.Next(false); err != nil {
			t.Error(err)
		}
	}
	want("nothing", 0)
	push()
	push()
	want("two pushes", 2)
	one()
	want("one of two was taken", 1)
	one()
	want("the second was taken", 0)
	one()
	want("a poll of nothing", 0)
	for range 3 {
		push()
	}
	pollIDs(t, cq, 2)
	want("two of three were polled", 1)
	if err := cq.Resize(16); err != nil {
		t.Fatal(err)
	}
	want("a resize", 1)
	cq.purge(a)
	want("a purge", 0)
}

func BenchmarkCQPushPoll(b *testing.B) {
	cq, _ := testCQ(b, 64)
	e := recvCQE(testQP(17), 1)
	b.ReportAllocs()
	for range b.N {
		cq.Push(e)
		cq.Poll(16, func(int, *transport.CQE) {})
	}
}

// The ring of a CQ grows with the completions that it holds, up to its size: their order and times stay.
func TestRingGrows(t *testing.T) {
	cq, up := testCQ(t, 64)
	cq.KeepTimes()
	qp := testQP(1)
	var in, out uint64
	push := func(n int) {
		for range n {
			cq.Push(recvCQE(qp, in))
			in++
		}
	}
	take := func(n int) {
		got, err := cq.Poll(n, func(_ int, e *transport.CQE) {
			if e.WRID != out {
				t.Fatalf("completion %d, want %d", e.WRID, out)
			}
			out++
		})
		if err != nil || got != n {
			t.Fatalf("%d completions, %v; want %d", got, err, n)
		}
	}
	if n := len(cq.ring); n != 0 {
		t.Errorf("a new CQ has room for %d", n)
	}
	push(3)
	if n := len(cq.ring); n != leastRing {
		t.Errorf("3 completions: room for %d, want %d", n, leastRing)
	}
	for _, n := range []int{2, 7, 3, 30, 1, 20} { // the ring wraps around before it grows
		take(2)
		push(n)
		if len(cq.stamps) != len(cq.ring) {
			t.Fatalf("%d times for %d entries", len(cq.stamps), len(cq.ring))
		}
	}
	for held(t, cq) < 64 {
		push(1)
	}
	if n := len(cq.ring); n != 64 || up.errors != 0 {
		t.Errorf("64 completions: room for %d, %d errors", n, up.errors)
	}
	take(64)
	push(65)
	if up.errors != 1 {
		t.Errorf("%d errors after one completion too many", up.errors)
	}
}
