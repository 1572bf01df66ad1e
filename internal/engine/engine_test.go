package engine

import (
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

var localAddr = netip.MustParseAddr("10.0.0.1")

// testEngine makes an engine on a network of its own, where it talks to itself.
func testEngine(t testing.TB, shards int, c Config) *Engine {
	t.Helper()
	c.Open = func() (link.Link, error) {
		return mem.NewFabric(mem.Config{Now: c.Now}).Open([]netip.Addr{localAddr}, shards)
	}
	e := New(c)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// silent ignores upcalls.
type silent struct{}

func (silent) Completion()                  {}
func (silent) Error()                       {}
func (silent) Event(transport.Event)        {}
func (silent) StateChanged(transport.State) {}

var regions = mr.NewTable(1000, mr.Counted())

// setQueues gives a QP queues of n requests.
func (qp *QP) setQueues(n int) {
	qp.OwnSQ.Init(n, 1, 0)
	qp.OwnRQ.Init(n, 1, false, 0)
}

// newQP makes a QP that is no part of another object.
func (e *Engine) newQP(in QPInit) (*QP, error) {
	qp := new(QP)
	qp.setQueues(64)
	return qp, e.CreateQP(qp, in)
}

func newQP(t testing.TB, e *Engine, cq *CQ, up QPUpcalls) *QP {
	t.Helper()
	qp, err := e.newQP(QPInit{
		Type: transport.RC, SendCQ: cq, RecvCQ: cq, Regions: regions, Up: up,
	})
	if err != nil {
		t.Fatal(err)
	}
	return qp
}

// connectQP takes an RC QP to RTS.
func connectQP(t testing.TB, qp *QP, peer uint32, timeout uint8) {
	t.Helper()
	connectTo(t, qp, link.Path{Src: localAddr, Dst: localAddr}, peer, timeout)
}

// connectTo is connectQP for a QP at another address.
func connectTo(t testing.TB, qp *QP, path link.Path, peer uint32, timeout uint8) {
	t.Helper()
	steps := []transport.Attr{
		{State: transport.Init, PKey: 0xffff, Access: uint32(mr.RemoteWrite)},
		{State: transport.RTR, Path: path, MTU: 1024, DestQPN: peer, MaxDestRdAtom: 1,
			MinRNRTimer: 1},
		{State: transport.RTS, Timeout: timeout, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1},
	}
	masks := []transport.Mask{
		transport.MaskState | transport.MaskPKeyIndex | transport.MaskAccess,
		transport.MaskState | transport.MaskAV | transport.MaskPathMTU | transport.MaskDestQPN | transport.MaskRQPSN |
			transport.MaskMaxDestRdAtom | transport.MaskMinRNRTimer,
		transport.MaskState | transport.MaskSQPSN | transport.MaskTimeout | transport.MaskRetryCnt |
			transport.MaskRNRRetry | transport.MaskMaxRdAtomic,
	}
	for i := range steps {
		if err := qp.Modify(&steps[i], masks[i]); err != nil {
			t.Fatal(err)
		}
	}
}

// pair makes two connected QPs.
func pair(t testing.TB, e *Engine, a, b *CQ) (*QP, *QP) {
	t.Helper()
	qa, qb := newQP(t, e, a, silent{}), newQP(t, e, b, silent{})
	connectQP(t, qa, qb.Num(), 14)
	connectQP(t, qb, qa.Num(), 14)
	return qa, qb
}

// postSend calls post with the locked send queue, and sends what it has added.
//
// +checklocksignore: the analyzer does not follow the callback.
func postSend(qp *QP, post func(q *transport.SendQueue) error) error {
	q, err := qp.BeginPost()
	if err != nil {
		return err
	}
	defer qp.EndPost()
	return post(q)
}

// postWrite posts an empty RDMA WRITE, which needs no memory.
func postWrite(qp *QP, id uint64) error {
	return postSend(qp, func(q *transport.SendQueue) error {
		w := q.Next()
		if w == nil {
			return transport.ErrQueueFull
		}
		w.WRID, w.Op, w.Flags, w.Length = id, transport.OpWrite, transport.Signaled, 0
		q.Commit()
		return nil
	})
}

// postSilently posts a WRITE of which the shard does not learn.
func postSilently(qp *QP) {
	qp.SQ.Lock()
	defer qp.SQ.Unlock()
	w := qp.SQ.Next()
	w.Op, w.Flags, w.Length = transport.OpWrite, transport.Signaled, 0
	qp.SQ.Commit()
	qp.SQ.Publish()
}

// manual is an engine whose time stands still unless the test moves it.
type manual struct {
	*Engine
	now int64
}

func newManual(t testing.TB, shards int) *manual {
	m := &manual{now: 1e9}
	m.Engine = testEngine(t, shards, Config{Manual: true, Now: func() int64 { return m.now }, FirstQPN: 0x100})
	return m
}

// stepUntilIdle steps until there is no more work at this time.
func (m *manual) stepUntilIdle(t testing.TB) {
	t.Helper()
	for n := 0; m.Step(); n++ {
		if n > 1000 {
			t.Fatal("the engine finds no end")
		}
	}
}

func TestManualEngineIsDeterministic(t *testing.T) {
	m := newManual(t, 2)
	a, b := m.NewCQ(8, 0, silent{}), m.NewCQ(8, 0, silent{})
	qa, qb := pair(t, m.Engine, a, b)
	if qa.Num() != 0x101 || qb.Num() != 0x102 {
		t.Errorf("QP numbers %x and %x", qa.Num(), qb.Num())
	}
	if err := postWrite(qa, 5); err != nil {
		t.Fatal(err)
	}
	m.stepUntilIdle(t)
	var ids []uint64
	if n := a.pop(8, 0, func(_ int, e *transport.CQE) { ids = append(ids, e.WRID) }); n != 1 || ids[0] != 5 {
		t.Errorf("completions %v", ids)
	}
	if d := m.NextDeadline(); d != Never {
		t.Errorf("an idle engine waits for %d", d)
	}
}

// A deadline shows in NextDeadline, and the step at that time serves it.
func TestNextDeadline(t *testing.T) {
	m := newManual(t, 2)
	cq := m.NewCQ(64, 0, silent{})
	qa := newQP(t, m.Engine, cq, silent{})
	connectQP(t, qa, 0x999, 10) // nobody; 4.2 ms
	if err := postWrite(qa, 5); err != nil {
		t.Fatal(err)
	}
	start := m.now
	m.stepUntilIdle(t)
	for steps := 0; held(t, cq) == 0; steps++ {
		next := m.NextDeadline()
		if next == Never || steps > 100 {
			t.Fatalf("after %d steps nothing is awaited, and nothing has completed", steps)
		}
		m.now = max(m.now, next)
		m.stepUntilIdle(t)
	}
	cq.pop(1, 0, func(_ int, e *transport.CQE) {
		if e.Status != transport.RetryExcErr {
			t.Errorf("completion %+v", e)
		}
	})
	if elapsed := time.Duration(m.now - start); elapsed < 8*4194*time.Microsecond {
		t.Errorf("eight timeouts of 4.2 ms took %v", elapsed)
	}
	if n := m.Counters().UnknownQPN; n != 8 {
		t.Errorf("%d packets for an unknown QP, want 8", n)
	}
}

// A shard remembers the QP of the last packet. Packets reach the QP of their number even so, and none that was
// destroyed.
func TestPacketsReachTheirQP(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(64, 0, silent{})
	a, b := pair(t, m.Engine, cq, cq)
	s := a.shard
	deliver := func(to *QP) {
		p := make([]byte, wire.BTHLen+wire.RETHLen)
		seq := uint32(to.QP.Counters.RxWriteRequests)
		wire.BTH(p).Put(wire.RC|wire.WriteOnly, 0, 0xffff, to.Num(), seq, 0)
		s.deliver(&link.RxPacket{Data: p, Src: localAddr, Dst: localAddr})
	}
	for _, c := range []struct {
		to      *QP
		destroy bool
		a, b    uint64 // packets until then
		unknown uint64
	}{
		{a, false, 1, 0, 0},
		{a, false, 2, 0, 0},
		{b, false, 2, 1, 0},
		{a, false, 3, 1, 0},
		{a, true, 3, 1, 1},
		{b, false, 3, 2, 1},
	} {
		if c.destroy {
			c.to.Destroy()
		}
		deliver(c.to)
		got := [3]uint64{a.QP.Counters.RxWriteRequests, b.QP.Counters.RxWriteRequests, s.counters.unknownQPN}
		if got != [3]uint64{c.a, c.b, c.unknown} {
			t.Errorf("packets for a, b and no QP: %v, want %v", got, c)
		}
	}
}

// A packet that arrives at another shard's port reaches its QP.
func TestPacketsAtTheWrongPort(t *testing.T) {
	m := newManual(t, 3)
	cq := m.NewCQ(64, 0, silent{})
	qa, qb := pair(t, m.Engine, cq, m.NewCQ(64, 2, silent{}))
	if qa.shard == qb.shard {
		t.Fatal("both QPs are in the same shard")
	}
	swapPorts(m.Engine)
	for i := range uint64(10) {
		if err := postWrite(qa, i); err != nil {
			t.Fatal(err)
		}
	}
	m.stepUntilIdle(t)
	if n := held(t, cq); n != 10 {
		t.Errorf("%d completions", n)
	}
}

// swapPorts gives each shard the port of another.
func swapPorts(e *Engine) {
	first := e.shards[0].port
	for i := range e.shards[1:] {
		e.shards[i].port = e.shards[i+1].port
	}
	e.shards[len(e.shards)-1].port = first
}

func TestInboxIsBounded(t *testing.T) {
	var b inbox
	p := &link.RxPacket{Data: make([]byte, 100)}
	for range inboxSize + 7 {
		b.put(1, p)
	}
	if len(b.slots) != inboxSize || b.drops() != 7 {
		t.Errorf("%d packets, %d dropped", len(b.slots), b.drops())
	}
}

// TestInboxCopiesByReference: a packet that waits for another shard does not depend on memory of its sender, which may
// be unmapped before that shard takes the packet. One whose payload was no longer valid then is dropped.
func TestInboxCopiesByReference(t *testing.T) {
	var b inbox
	now := new(atomic.Uint64)
	now.Store(5)
	packet := make([]byte, wire.BTHLen)
	wire.BTH(packet).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 1, 0, 0)
	p := &link.RxPacket{Data: packet, Epoch: link.NewEpoch(now, 5)}
	b.put(1, p)
	now.Store(6)
	b.put(1, p)
	for i, want := range []uint16{0xFFFF, 0} {
		got := &b.slots[i].pkt
		if key := wire.BTH(got.Data).PKey(); key != want || got.Epoch != (link.Epoch{}) {
			t.Errorf("packet %d: P_Key %#x, %+v", i, key, got.Epoch)
		}
	}
}

func TestV_QPS_01_DestroyFreesTheNumber(t *testing.T) {
	m := newManual(t, 2)
	cq := m.NewCQ(8, 0, silent{})
	qa, qb := pair(t, m.Engine, cq, cq)
	if err := postWrite(qa, 1); err != nil {
		t.Fatal(err)
	}
	qa.Destroy()
	qb.Destroy()
	m.stepUntilIdle(t)
	if n := held(t, cq); n != 0 {
		t.Errorf("%d completions of destroyed QPs", n)
	}
	if m.qps.qps.Len() != 0 || cq.shards.Load() != 0 || m.NextDeadline() != Never {
		t.Errorf("left: %d QPs, shards %b, deadline %d", m.qps.qps.Len(), cq.shards.Load(), m.NextDeadline())
	}
	if c := m.Counters(); c.QP.RxWriteRequests != 1 && c.UnknownQPN == 0 {
		t.Errorf("counters of destroyed QPs are forgotten: %+v", c)
	}
	if err := postWrite(qa, 1); err != transport.ErrState {
		t.Errorf("posting to a destroyed QP: %v", err)
	}
}

func TestModifyAfterTheQPMovedByItself(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(8, 0, silent{})
	qa := newQP(t, m.Engine, cq, silent{})
	connectQP(t, qa, 0x999, 14)
	qa.QP.Fail(&transport.Failure{}, 0)
	if err := qa.Modify(&transport.Attr{State: transport.SQD}, transport.MaskState); err != transport.ErrMoved {
		t.Errorf("ERR to SQD: %v", err)
	}
	if err := qa.Modify(&transport.Attr{State: transport.Reset}, transport.MaskState); err != nil {
		t.Errorf("ERR to RESET: %v", err)
	}
}

// A poller that always finds completions still runs the shards, so its own requests are sent and its peers get their
// ACKs.
func TestPollingANonEmptyCQMakesProgress(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(64, 0, silent{})
	qa, qb := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
	for i := range uint64(2 * pollsPerStep) {
		cq.Push(&transport.CQE{WRID: i, QP: &qa.QP, Send: true, Slot: ^uint32(0)})
	}
	if err := postWrite(qa, 99); err != nil {
		t.Fatal(err)
	}
	for range pollsPerStep {
		if n, err := cq.Poll(1, func(int, *transport.CQE) {}); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n := qb.Counters().RxWriteRequests; n != 1 {
		t.Errorf("the peer took %d requests", n)
	}
}
