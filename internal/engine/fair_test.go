package engine

import (
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// recorder is a port that notes which QP each packet is for, and loses it.
type recorder struct {
	link.Port
	sent []uint32
}

func (r *recorder) Send(b *link.TxBatch) {
	for i := range b.Packets {
		r.sent = append(r.sent, wire.BTH(b.Bytes(i)).DestQPN())
	}
	b.Reset()
}

// postSends posts n messages of size bytes, from memory region key.
func postSends(t *testing.T, qp *QP, n int, size, key uint32) {
	t.Helper()
	err := postSend(qp, func(q *transport.SendQueue) error {
		for range n {
			w := q.Next()
			w.Op, w.Flags, w.Length = transport.OpSend, 0, size
			w.SGEs = append(w.SGEs, transport.SGE{Length: size, LKey: key})
			q.Commit()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// QPs with much data send in turns: a QP waits at most for one turn of each other QP.
func TestQPsTakeTurns(t *testing.T) {
	m := newManual(t, 1)
	cq := m.NewCQ(8, 0, silent{})
	region := &mr.Region{Buf: make([]byte, 150*1024)}
	if err := regions.Add(region); err != nil {
		t.Fatal(err)
	}
	var qps []*QP
	for i := range 4 {
		qp := newQP(t, m.Engine, cq, silent{})
		connectQP(t, qp, uint32(0x1000+i), 14)
		qps = append(qps, qp)
	}
	s := m.shards[0]
	rec := &recorder{Port: s.port}
	s.port = rec
	s.hold() // so that all are posted before anything is sent
	for i, qp := range qps {
		if size := uint32(len(region.Buf)); i < 3 {
			postSends(t, qp, 1, size, region.LKey) // 150 packets, which fit the window
		} else {
			postSends(t, qp, 1, 1, region.LKey)
		}
	}
	s.release()
	m.stepUntilIdle(t)
	last := map[uint32]int{}
	for i, qpn := range rec.sent {
		if before, ok := last[qpn]; ok && i-before > 4*turnPackets {
			t.Errorf("QP %x waited from packet %d to %d", qpn, before, i)
		}
		last[qpn] = i
	}
	if len(rec.sent) != 3*150+1 {
		t.Errorf("%d packets, want 451", len(rec.sent))
	}
	if at := last[0x1003]; at > 3*turnPackets {
		t.Errorf("the small message was packet %d", at)
	}
}

// full is a Direct port that has room for packets, which it loses, only while open.
type full struct {
	link.Port
	open      bool
	refused   int
	placed    []uint32 // QPNs of the peers
	published int
	buf       [8192]byte
}

func (f *full) Send(b *link.TxBatch) { b.Reset() }

func (f *full) PlaceCounted(path *link.Path, qpn uint32, n int, _ link.Ack) ([]byte, bool) {
	return f.Place(path, qpn, n, false)
}

func (f *full) Place(_ *link.Path, qpn uint32, n int, _ bool) ([]byte, bool) {
	if f.open {
		f.placed = append(f.placed, qpn)
		return f.buf[:n], true
	}
	f.refused++
	return nil, true
}

func (f *full) Train(*link.Path, uint32) int { return 0 }
func (f *full) Publish()                     { f.published++ }

// A turn in which the link has no room for any packet counts as stalled: its receiver may need our core to make room.
func TestStalledTurn(t *testing.T) {
	m := newManual(t, 1)
	region := &mr.Region{Buf: make([]byte, 20*1024)}
	if err := regions.Add(region); err != nil {
		t.Fatal(err)
	}
	qp := newQP(t, m.Engine, m.NewCQ(8, 0, silent{}), silent{})
	connectQP(t, qp, 0x1000, 14)
	s := m.shards[0]
	f := &full{Port: s.port}
	s.port, s.tx.Direct = f, f
	postSends(t, qp, 1, uint32(len(region.Buf)), region.LKey)
	turn := func() (busy, stalled bool) {
		s.hold()
		defer s.release()
		busy = s.step(s.eng.now())
		return busy, s.stalled
	}
	for range 3 {
		if busy, stalled := turn(); !busy || !stalled {
			t.Errorf("no room: busy %v, stalled %v", busy, stalled)
		}
	}
	if f.refused == 0 {
		t.Fatal("the engine did not ask the port for room")
	}
	if s.bg.kicked.Load() {
		t.Error("the background goroutine is told to look again at once")
	}
	if d := s.timer.Load() - s.now; d <= 0 || d > int64(stallNap) {
		t.Errorf("the next look is after %d ns, want one within %v", d, stallNap)
	}
	f.open = true
	if _, stalled := turn(); stalled {
		t.Error("stalled although there was room")
	}
	if busy, stalled := turn(); busy || stalled {
		t.Errorf("after everything was sent: busy %v, stalled %v", busy, stalled)
	}
}

// An acknowledgement for which the link has no room waits for it. Each turn tries once, and counts one message without
// an answer at most.
func TestAcknowledgementWaitsForRoom(t *testing.T) {
	m := newManual(t, 1)
	qp := newQP(t, m.Engine, m.NewCQ(8, 0, silent{}), silent{})
	connectQP(t, qp, 0x1000, 14)
	s := m.shards[0]
	f := &full{Port: s.port}
	s.port, s.tx.Direct = f, f
	write := make([]byte, wire.BTHLen+wire.RETHLen) // of no bytes
	wire.BTH(write).Put(wire.RC|wire.WriteOnly, 0, 0xffff, qp.Num(), 0, wire.BTHAckReq)
	s.hold()
	defer s.release()
	qp.Sched.Answers = 3
	s.deliver(&link.RxPacket{Data: write, Src: localAddr, Dst: localAddr})
	if busy := s.step(s.eng.now()); !busy || !s.stalled || f.refused != 1 || qp.Sched.Answers != 3 {
		t.Errorf("busy %v, stalled %v, %d places refused, %d answers: want one and 3", busy, s.stalled, f.refused,
			qp.Sched.Answers)
	}
	f.open = true
	if busy := s.step(s.eng.now()); busy || s.stalled || qp.Replying() {
		t.Errorf("with room: busy %v, stalled %v, replying %v", busy, s.stalled, qp.Replying())
	}
}

// The acknowledgements of several QPs to processes of this host are published together. A QP with requests to send
// comes after them, and so do those behind it.
func TestAcknowledgementsArePublishedTogether(t *testing.T) {
	m := newManual(t, 1)
	var qps [4]*QP
	for i := range qps {
		qps[i] = newQP(t, m.Engine, m.NewCQ(8, 0, silent{}), silent{})
		connectQP(t, qps[i], 0x1000+uint32(i), 14)
	}
	s := m.shards[0]
	f := &full{Port: s.port}
	s.port, s.tx.Direct = f, f
	receive := func(seq uint32) {
		for _, qp := range qps {
			write := make([]byte, wire.BTHLen+wire.RETHLen) // of no bytes
			wire.BTH(write).Put(wire.RC|wire.WriteOnly, 0, 0xffff, qp.Num(), seq, wire.BTHAckReq)
			s.deliver(&link.RxPacket{Data: write, Src: localAddr, Dst: localAddr})
		}
	}
	step := func(busy bool, published int, placed ...uint32) {
		t.Helper()
		f.placed, f.published = nil, 0
		if got := s.step(s.eng.now()); got != busy {
			t.Errorf("busy: %t, want %t", got, busy)
		}
		if !slices.Equal(f.placed, placed) || f.published != published {
			t.Errorf("%#x were placed and published %d times, want %#x, %d times", f.placed, f.published, placed, published)
		}
	}
	s.hold()
	defer s.release()
	receive(0)
	step(true, 0)
	f.open = true
	step(false, 1, 0x1000, 0x1001, 0x1002, 0x1003)
	receive(1)
	w, err := qps[2].BeginPost()
	if err != nil {
		t.Fatal(err)
	}
	w.Next().Op = transport.OpWrite
	w.Commit()
	w.Publish()
	w.Unlock()
	step(false, 1, 0x1000, 0x1001, 0x1002, 0x1002, 0x1003)
}
