package rdmatest_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

func connect(t *testing.T, a, b *side) {
	t.Helper()
	for _, p := range [][2]*side{{a, b}, {b, a}} {
		info, err := p[1].qp.LocalInfo()
		if err != nil {
			t.Fatal(err)
		}
		if err := p[0].qp.Connect(info, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// A permanent Cut ends a connection after the ACK timeouts of all retries, in virtual time.
func TestCutEndsConnection(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{})
	a, b := newSide(f, "a"), newSide(f, "b")
	connect(t, a, b)
	one, two := netip.MustParseAddr("198.18.0.1"), netip.MustParseAddr("198.18.0.2")
	f.Cut(one, two)
	if err := a.qp.PostSend(verbs.SendWR{WRID: 7, Opcode: verbs.WRSend}); err != nil {
		t.Fatal(err)
	}
	var wc [1]verbs.WC
	failed := func() bool { n, _ := a.cq.Poll(wc[:]); return n == 1 }
	if !f.Run(failed, time.Minute) || wc[0].Status != verbs.WCRetryExcErr || wc[0].WRID != 7 {
		t.Fatalf("got %+v at %v", wc[0], f.Now())
	}
	// 67 ms, twice that, and four times that for the other six retries.
	if took := f.Now(); took < 27*67*time.Millisecond || took > 28*68*time.Millisecond {
		t.Errorf("gave up after %v, want 27 times 67 ms", took)
	}
	if s := f.Stats(); s.Cut != 8 {
		t.Errorf("%d packets were cut, want 8", s.Cut)
	}
}

// Advance returns false only when the fabric waits for the test.
func TestAdvanceEnds(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{})
	a, b := newSide(f, "a"), newSide(f, "b")
	connect(t, a, b)
	if f.Advance() {
		t.Error("Advance returned true for an idle fabric")
	}
	if err := b.qp.PostRecv(verbs.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendSignaled}); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if !f.Advance() {
			var wc [2]verbs.WC
			if n, _ := a.cq.Poll(wc[:]); n != 1 {
				t.Error("the fabric stopped before the SEND was complete")
			}
			return
		}
	}
	t.Error("Advance keeps returning true")
}

// In real time devices run concurrently, and calls may wait.
func TestRealTime(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{RealTime: true, Faults: rdmatest.Faults{Loss: 0.2}})
	a, b := newSide(f, "a"), newSide(f, "b")
	connect(t, a, b)
	ch, err := b.qp.Context().CreateCompChannel()
	if err != nil {
		t.Fatal(err)
	}
	defer ch.Close()
	cq, err := b.qp.Context().CreateCQ(4, &verbs.CQOptions{Channel: ch})
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	qp, err := b.qp.PD().CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Close()
	c := newSide(f, "c")
	connect(t, c, &side{qp: qp})
	if err := cq.ReqNotify(false); err != nil {
		t.Fatal(err)
	}
	if err := qp.PostRecv(verbs.RecvWR{}); err != nil {
		t.Fatal(err)
	}
	if err := c.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend}); err != nil {
		t.Fatal(err)
	}
	limit, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := ch.GetEvent(limit); err != nil {
		t.Fatal(err)
	}
	cq.AckEvents(1)
	var wc [1]verbs.WC
	if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WCSuccess {
		t.Fatalf("%d completions, %v, %+v", n, err, wc[0])
	}
}

// An injected datagram arrives unchanged, and the counters show its faults.
func TestInject(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{})
	a, b := newSide(f, "a"), newSide(f, "b")
	connect(t, a, b)
	from, to := netip.MustParseAddr("198.18.0.7"), netip.MustParseAddr("198.18.0.1")
	f.Inject(from, to, 50000, nil)
	f.Inject(from, to, 50000, make([]byte, 3))
	f.Inject(from, to, 50000, make([]byte, 20)) // with a wrong ICRC
	ack := wire.Fields{Opcode: wire.RC | wire.Ack, PKey: 0xffff, DestQPN: a.qp.QPN()}.Build()
	sealed := append(ack, 0, 0, 0, 0)
	wire.NewFlow(from, to, 50000, 4791).Seal(sealed, 0)
	f.Inject(from, to, 50000, sealed)
	for f.Advance() {
	}
	c := f.Counters(a.qp.Context())
	if c["rx_malformed"] != 2 || c["rx_icrc_errors"] != 1 || c["bad_source"] != 1 {
		t.Errorf("counters %v", c)
	}
	if s := f.Stats(); s.Sent != 4 {
		t.Errorf("%+v", s)
	}
}

// Run does not advance beyond its limit.
func TestRunStopsAtItsLimit(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{Faults: rdmatest.Faults{Delay: time.Second}})
	a, b := newSide(f, "a"), newSide(f, "b")
	connect(t, a, b)
	never := func() bool { return false }
	if f.Run(never, time.Millisecond); f.Now() != time.Millisecond {
		t.Errorf("an idle fabric is at %v after 1 ms", f.Now())
	}
	if err := a.qp.PostSend(verbs.SendWR{Opcode: verbs.WRSend}); err != nil {
		t.Fatal(err)
	}
	if f.Run(never, time.Millisecond); f.Now() != 2*time.Millisecond {
		t.Errorf("a fabric with a packet in flight for 1 s is at %v after 2 ms", f.Now())
	}
}

// Close after EBUSY closes the contexts that it could not close before.
func TestCloseAgain(t *testing.T) {
	f := rdmatest.New(rdmatest.Config{})
	vctx := must(f.Open("a"))
	pd := must(vctx.AllocPD())
	for range 2 {
		if err := f.Close(); !errors.Is(err, verbs.EBUSY) {
			t.Errorf("Close with a PD: %v, want EBUSY", err)
		}
	}
	if err := pd.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := vctx.Close(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("the context is still open: %v", err)
	}
}
