package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// late is a batch that a slowPort has taken.
type late struct {
	packets []link.TxPacket
	buf     []byte // as it was when it was sent
	lent    []byte // the memory itself, if the port counts on that
}

// slowPort is a Lender that delivers requests late and in order: one batch at each Recv, unless sleep returns true.
// Responses are delivered at once.
type slowPort struct {
	link.Port
	t     *testing.T
	lose  func() bool
	sleep func() bool
	mem   [][]byte
	queue []late
	stuck bool   // pages cannot be replaced
	fresh []bool // of each Renew: whether pages might be large
	lent  int    // batches
	bulk  int    // other batches with bulk data
}

func (p *slowPort) Capabilities() link.PortCapabilities { return link.PortCapabilities{Lender: p} }

func (p *slowPort) Lend(size int) []byte {
	p.mem = append(p.mem, make([]byte, size))
	return p.mem[len(p.mem)-1]
}

func (p *slowPort) Renew(mem []byte, large bool) bool {
	if p.stuck {
		return false
	}
	for i := range p.queue {
		if l := &p.queue[i]; l.lent != nil && within(l.lent, mem) {
			l.lent = append([]byte(nil), l.lent...) // the kernel keeps the old pages
		}
	}
	clear(mem)
	p.fresh = append(p.fresh, large)
	return true
}

// within reports whether b begins in mem.
func within(b, mem []byte) bool {
	at := uintptr(unsafe.Pointer(&b[0])) - uintptr(unsafe.Pointer(&mem[0]))
	return at < uintptr(len(mem))
}

func (p *slowPort) Send(b *link.TxBatch) {
	l := late{buf: append([]byte(nil), b.Buf...)}
	var responses []link.TxPacket
	for i, pkt := range b.Packets {
		if wire.BTH(b.Bytes(i)).Opcode().Is(wire.Response) {
			responses = append(responses, pkt)
		} else {
			l.packets = append(l.packets, pkt)
		}
	}
	switch {
	case b.Keep:
		l.lent, b.Kept = b.Buf, true
		p.lent++
	case len(b.Packets) >= bulkPackets:
		p.bulk++
	}
	p.deliver(responses, b.Buf)
	if len(l.packets) > 0 && !p.lose() {
		p.queue = append(p.queue, l)
	}
	b.Reset()
}

func (p *slowPort) deliver(packets []link.TxPacket, buf []byte) {
	b := link.NewTxBatch(len(packets), len(buf))
	b.Packets = append(b.Packets, packets...)
	copy(b.Buf, buf)
	p.Port.Send(b)
}

func (p *slowPort) Recv(b *link.RxBatch) int {
	if len(p.queue) > 0 && !p.sleep() {
		l := p.queue[0]
		p.queue = p.queue[1:]
		if l.lent != nil && !bytes.Equal(l.lent, l.buf) {
			p.t.Error("lent memory has changed before it was read")
		}
		p.deliver(l.packets, l.buf)
	}
	return p.Port.Recv(b)
}

func never() bool  { return false }
func always() bool { return true }

// slowEngine is a manual engine with a slowPort and two connected QPs.
func slowEngine(t *testing.T, lose, sleep func() bool) (m *manual, p *slowPort, cq *CQ, qa, qb *QP) {
	t.Helper()
	m = newManual(t, 1)
	cq = m.NewCQ(64, 0, silent{})
	qa, qb = pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
	p = &slowPort{Port: m.shards[0].port, t: t, lose: lose, sleep: sleep}
	m.shards[0].port = p
	return m, p, cq, qa, qb
}

// region registers n bytes.
func region(t *testing.T, n int) *mr.Region {
	t.Helper()
	r := &mr.Region{Buf: make([]byte, n), Access: mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead}
	if err := regions.Add(r); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := regions.Remove(r); err != nil {
			t.Error(err)
		}
	})
	return r
}

// postMessage posts a WRITE or a READ of a whole region.
func postMessage(t *testing.T, qp *QP, op transport.Op, local, remote *mr.Region) {
	t.Helper()
	n := uint32(len(local.Buf))
	err := postSend(qp, func(q *transport.SendQueue) error {
		w := q.Next()
		w.Op, w.Flags, w.Length, w.RKey = op, transport.Signaled, n, remote.RKey
		w.SGEs = append(w.SGEs, transport.SGE{Length: n, LKey: local.LKey})
		q.Commit()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// complete steps through the time until n completions have come.
func (m *manual) complete(t *testing.T, cq *CQ, n int) {
	t.Helper()
	for steps := 0; held(t, cq) < n; steps++ {
		if steps > 1e6 {
			t.Fatal("nothing completes")
		}
		m.Step()
		m.now += 10_000
	}
	cq.pop(n, 0, func(_ int, e *transport.CQE) {
		if e.Status != transport.Success {
			t.Fatalf("completion %+v", e)
		}
	})
}

// A slot is not used again before its packets were read: with late reads, with reads so late that packets are
// retransmitted, with loss, and with more data in flight than the slots hold.
func TestLentMemoryStaysUntilItIsRead(t *testing.T) {
	for _, c := range []struct {
		name       string
		loss, stop float64
	}{{"prompt", 0, 0}, {"lossy", 0.02, 0}, {"late", 0, 0.02}, {"late and lossy", 0.01, 0.01}} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			asleep := 0
			m, p, cq, qa, _ := slowEngine(t, func() bool { return rnd.Float64() < c.loss }, func() bool {
				if asleep--; asleep <= 0 && rnd.Float64() < c.stop {
					asleep = 1000
				}
				return asleep > 0
			})
			qc, _ := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
			var from, to []*mr.Region
			for _, qp := range []*QP{qa, qc} {
				qp.QP.SetWindow(2*loanSlots*txBytes, nil)
				from, to = append(from, region(t, 4<<20)), append(to, region(t, 4<<20))
			}
			for range 3 {
				for i, qp := range []*QP{qa, qc} {
					for k := range from[i].Buf {
						from[i].Buf[k] = byte(rnd.Uint32())
					}
					postMessage(t, qp, transport.OpWrite, from[i], to[i])
				}
				m.complete(t, cq, 2)
				for i := range from {
					if !bytes.Equal(from[i].Buf, to[i].Buf) {
						t.Fatal("the data did not arrive")
					}
				}
			}
			if p.lent < 50 {
				t.Errorf("%d batches were lent, %d copied", p.lent, p.bulk)
			}
			if again := qa.QP.Counters.RetransmitPackets; (again > 0) != (c.loss+c.stop > 0) {
				t.Errorf("%d packets were retransmitted", again)
			}
		})
	}
}

// The acknowledgement of a retransmitted packet may be that of its first transmission. So retransmissions are copied.
func TestRetransmissionsAreCopied(t *testing.T) {
	asleep := false
	m, p, cq, qa, _ := slowEngine(t, never, func() bool { return asleep })
	qa.QP.SetWindow(8*loanSlots*txBytes, nil)
	small, big := region(t, loanSlots/2*txBytes), region(t, 2*loanSlots*txBytes)
	write := func(r *mr.Region) { postMessage(t, qa, transport.OpWrite, r, r) }
	write(small)
	m.complete(t, cq, 1)

	asleep = true
	write(small)
	again := &qa.QP.Counters.RetransmitPackets
	for n := 0; *again < uint64(len(small.Buf)/1024); n++ {
		if n > 1e5 {
			t.Fatal("no packet is retransmitted")
		}
		m.Step()
		m.now += 10_000
	}
	asleep = false
	m.complete(t, cq, 1)
	if len(p.queue) < loanSlots/4 {
		t.Fatalf("%d batches are still to be read: too few for this test", len(p.queue))
	}
	write(big)
	m.complete(t, cq, 1)
}

// A READ response is not acknowledged, so its memory is not lent. Small messages are copied too.
func TestOnlyBulkRequestsAreLent(t *testing.T) {
	m, p, cq, qa, qb := slowEngine(t, never, never)
	if err := qb.Modify(&transport.Attr{Access: uint32(mr.RemoteRead | mr.RemoteWrite)},
		transport.MaskAccess); err != nil {
		t.Fatal(err)
	}
	big, also := region(t, 1<<20), region(t, 1<<20)
	postMessage(t, qa, transport.OpRead, also, big)
	m.complete(t, cq, 1)
	if p.bulk == 0 {
		t.Error("no batch was full of READ responses")
	}
	for range 100 {
		if err := postWrite(qa, 1); err != nil {
			t.Fatal(err)
		}
		m.complete(t, cq, 1)
	}
	if p.lent != 0 || len(p.mem) > 0 {
		t.Errorf("%d batches were lent", p.lent)
	}
}

// A poster does not receive packets. When all slots are in use it does not copy the rest, but leaves it to the next
// step of the shard, which first processes acknowledgements.
func TestPostingStopsWhenAllSlotsAreTaken(t *testing.T) {
	m, p, cq, qa, _ := slowEngine(t, never, never)
	qa.QP.SetWindow(8*loanSlots*txBytes, nil)
	from, to := region(t, 1<<20), region(t, 1<<20)
	const posts = 8
	for range posts {
		postMessage(t, qa, transport.OpWrite, from, to)
	}
	if p.lent != loanSlots || p.bulk > posts {
		t.Errorf("%d batches were lent, want %d; %d were copied", p.lent, loanSlots, p.bulk)
	}
	m.complete(t, cq, posts)
}

// If all slots are in use and no acknowledgement arrives, batches are copied, and slots are free after loanTerm. The
// slots of a destroyed QP hold no reference to it.
func TestTakenSlots(t *testing.T) {
	m, p, _, qa, _ := slowEngine(t, always, never)
	qa.QP.SetWindow(8*loanSlots*txBytes, nil)
	s := m.shards[0]
	src, dst := region(t, 2*loanSlots*txBytes), region(t, 2*loanSlots*txBytes)
	postMessage(t, qa, transport.OpWrite, src, dst)
	m.stepUntilIdle(t)
	if p.lent != loanSlots || p.bulk < loanSlots/2 {
		t.Fatalf("%d batches were lent, want %d; %d were copied", p.lent, loanSlots, p.bulk)
	}
	if s.loans.begin(s, &qa.QP); s.loans.set != nil || &s.tx.Buf[0] != &s.loans.own[0] {
		t.Error("the batch is filled into a slot in use")
	}
	o := s.loans.sets[0].slots[3]
	if !o.taken(m.now + loanTerm) {
		t.Error("the slot is free before its time")
	}
	qa.Destroy()
	if set := s.loans.sets[0]; set.of != (transport.Connection{}) || set.slots[3].end != (transport.Mark{}) {
		t.Error("the slots still refer to the QP")
	}
	if o.taken(m.now + loanTerm + 1) {
		t.Error("the slot is not free when its time is over")
	}
}
