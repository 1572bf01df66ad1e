package engine

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// unreadPort is a Lender whose receivers acknowledge every packet, but do not read the lent ones out of their sockets.
// So the packets refer to the lent memory after it was reused. A receiver is a QP number and an era, since after a
// RESET the same number may belong to another receiver.
type unreadPort struct {
	*slowPort
	unread []unread
	era    map[uint32]int // by QP number: how many RESETs there were
}

// unread is a lent packet in the socket of its receiver.
type unread struct {
	qpn  uint32
	era  int
	lent []byte
}

func (p *unreadPort) Send(b *link.TxBatch) {
	for _, mem := range p.mem {
		for i := range b.Packets {
			if within(b.Buf, mem) && wire.BTH(b.Bytes(i)).DestQPN() != wire.BTH(b.Bytes(0)).DestQPN() {
				p.t.Error("a slot holds packets of two connections")
			}
		}
	}
	if b.Keep {
		b.Kept = true
		for i := range b.Packets {
			qpn := wire.BTH(b.Bytes(i)).DestQPN()
			p.unread = append(p.unread, unread{qpn, p.era[qpn], b.Bytes(i)})
		}
		p.lent++
	}
	p.deliver(b.Packets, b.Buf)
	b.Reset()
}

func (p *unreadPort) Capabilities() link.PortCapabilities { return link.PortCapabilities{Lender: p} }

func (p *unreadPort) Recv(b *link.RxBatch) int { return p.Port.Recv(b) }

func (p *unreadPort) Renew(mem []byte, large bool) bool {
	if p.stuck {
		return false
	}
	for i := range p.unread {
		if h := &p.unread[i]; within(h.lent, mem) {
			h.lent = bytes.Clone(h.lent) // the kernel keeps the old pages
		}
	}
	clear(mem)
	p.fresh = append(p.fresh, large)
	return true
}

// check fails if the receiver of one connection can read bytes of another one. The bytes of a connection are runs of
// its mark; headers contain no run of 8 equal marks.
func (p *unreadPort) check(t *testing.T, marks map[uint32][]byte) {
	t.Helper()
	for _, h := range p.unread {
		for qpn, list := range marks {
			for era, mark := range list {
				if (qpn != h.qpn || era != h.era) && bytes.Contains(h.lent, bytes.Repeat([]byte{mark}, 8)) {
					t.Fatalf("the receiver of QP %#x (%d) reads bytes for %#x (%d)", h.qpn, h.era, qpn, era)
				}
			}
		}
	}
}

// leakTest is a manual engine with an unreadPort and pairs of QPs, of which one writes to the other. All bytes for one
// receiver have the same value, its mark.
type leakTest struct {
	*manual
	p    *unreadPort
	cq   *CQ
	qps  []*QP
	dest []uint32
	mark map[uint32][]byte // by QP number and era
}

func newLeakTest(t *testing.T, n int) *leakTest {
	m, slow, cq, _, _ := slowEngine(t, never, never)
	h := &leakTest{manual: m, cq: cq, p: &unreadPort{slowPort: slow, era: map[uint32]int{}}, mark: map[uint32][]byte{}}
	m.shards[0].port = h.p
	for range n {
		qa, qb := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
		qa.QP.SetWindow(8*loanSlots*txBytes, nil)
		h.qps, h.dest = append(h.qps, qa), append(h.dest, qb.Num())
		h.mark[qb.Num()] = []byte{byte(0x10 + len(h.qps))}
	}
	return h
}

func (h *leakTest) markOf(qpn uint32, era int) byte { return h.mark[qpn][era] }

// write sends n bytes over connection i, all of them the mark of its receiver.
func (h *leakTest) write(t *testing.T, i, n int) {
	t.Helper()
	from, to := region(t, n), region(t, n)
	d := h.dest[i]
	for k := range from.Buf {
		from.Buf[k] = h.markOf(d, h.p.era[d])
	}
	postMessage(t, h.qps[i], transport.OpWrite, from, to)
	h.complete(t, h.cq, 1)
	if !bytes.Equal(from.Buf, to.Buf) {
		t.Fatal("the data did not arrive")
	}
}

// A receiver that acknowledges packets without reading them never sees another connection's bytes in the lent memory,
// even after the slots were assigned to other connections.
func TestLentMemoryHoldsOneConnection(t *testing.T) {
	h := newLeakTest(t, maxLoanSets+3)
	for round := range 4 {
		for i := range h.qps {
			h.write(t, i, 1<<20)
			h.p.check(t, h.mark)
			h.write(t, (i+1)%len(h.qps), 100)
			h.now += loanIdle
		}
		if round == 2 {
			h.qps[1].Destroy()
			h.qps, h.dest = append(h.qps[:1], h.qps[2:]...), append(h.dest[:1], h.dest[2:]...)
		}
	}
	h.write(t, 0, loanSlots*txBytes*3)
	h.p.check(t, h.mark)
	if len(h.p.fresh) < 3 || h.p.lent < 100 {
		t.Errorf("slots were assigned to another connection %d times, %d batches were lent", len(h.p.fresh), h.p.lent)
	}
}

// Connections that send at the same time share no slot. A short message of one is not put into the slot of another.
func TestLentMemoryOfConnectionsTogether(t *testing.T) {
	h := newLeakTest(t, maxLoanSets+2)
	s := h.shards[0]
	for round := range 4 {
		n := 0
		h.write(t, 0, loanSlots*txBytes) // every slot holds unread packets
		h.write(t, 1, loanSlots*txBytes)
		for _, size := range []int{1 << 20, 700, 70_000, 7, 200_000, 900} {
			s.hold()
			for i := range h.qps {
				if round%2 == 0 {
					i = len(h.qps) - 1 - i // another order
				}
				from, to := region(t, size), region(t, size)
				for k := range from.Buf {
					from.Buf[k] = h.markOf(h.dest[i], 0)
				}
				postMessage(t, h.qps[i], transport.OpWrite, from, to)
				n++
			}
			s.release()
		}
		h.complete(t, h.cq, n)
		h.p.check(t, h.mark)
		h.now += loanIdle
	}
	if h.p.lent < 20 {
		t.Errorf("%d batches were lent", h.p.lent)
	}
}

// A QP that is reset and connected again has another receiver, even at the same address and QP number.
func TestLentMemoryOfAQPThatIsReset(t *testing.T) {
	h := newLeakTest(t, 1)
	d := h.dest[0]
	for era := range 4 {
		h.write(t, 0, 1<<20)
		h.p.check(t, h.mark)
		for _, qp := range []*QP{h.qps[0], h.shards[0].eng.qps.get(d).Owner.(*QP)} {
			if err := qp.Modify(&transport.Attr{State: transport.Reset}, transport.MaskState); err != nil {
				t.Fatal(err)
			}
		}
		h.p.era[d] = era + 1
		h.mark[d] = append(h.mark[d], byte(0x40+era))
		connectQP(t, h.qps[0], d, 14)
		connectQP(t, h.shards[0].eng.qps.get(d).Owner.(*QP), h.qps[0].Num(), 14)
	}
	if h.p.lent < 20 {
		t.Errorf("%d batches were lent", h.p.lent)
	}
}

// Pages are replaced at limited rates, since replacing them is expensive; the limit for large pages is lower. Data of
// connections without slots are copied. Slots whose pages cannot be replaced are not used any more.
func TestSlotsOfOtherConnections(t *testing.T) {
	h := newLeakTest(t, maxLoanSets+2)
	for i := range maxLoanSets {
		h.write(t, i, 1<<20)
	}
	copied := func(i int) {
		t.Helper()
		before := h.p.lent
		if h.write(t, i, 1<<20); h.p.lent != before {
			t.Errorf("%d batches of connection %d were lent", h.p.lent-before, i)
		}
	}
	lent := func(i int) {
		t.Helper()
		before := h.p.lent
		if h.write(t, i, 1<<20); h.p.lent == before {
			t.Errorf("no batch of connection %d was lent", i)
		}
	}
	for _, set := range h.shards[0].loans.sets {
		set.used = h.now
	}
	copied(maxLoanSets)
	h.now += loanIdle
	lent(maxLoanSets)
	h.now += loanIdle
	for i := 1; i < maxLoanSets; i++ {
		lent(i)
	}
	h.shards[0].loans.renewed = h.now
	copied(0)
	h.now += loanPause
	lent(0)
	if len(h.p.fresh) != 2 || !h.p.fresh[0] || h.p.fresh[1] {
		t.Errorf("new pages, large or not: %v, want one large, one small", h.p.fresh)
	}
	h.now += largePause
	h.p.stuck = true
	copied(maxLoanSets + 1)
	for i := range h.qps {
		h.write(t, i, 1<<20)
	}
	h.p.check(t, h.mark)
}
