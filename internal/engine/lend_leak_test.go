package engine

import (
	"bytes"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// hoarder is a Lender whose receivers acknowledge every packet and leave those that were lent in their sockets, where
// they see what becomes of the memory. Each packet has its receiver: a QP number, or another one for the same number
// after a reset.
type hoarder struct {
	*slowPort
	hoard []hoarded
	era   map[uint32]int // of a QP number: how often it was given to another receiver
}

type hoarded struct {
	qpn  uint32
	era  int
	lent []byte
}

func (p *hoarder) Send(b *link.TxBatch) {
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
			p.hoard = append(p.hoard, hoarded{qpn, p.era[qpn], b.Bytes(i)})
		}
		p.lent++
	}
	p.deliver(b.Packets, b.Buf)
	b.Reset()
}

func (p *hoarder) Capabilities() link.PortCapabilities { return link.PortCapabilities{Lender: p} }

func (p *hoarder) Recv(b *link.RxBatch) int { return p.Port.Recv(b) }

func (p *hoarder) Renew(mem []byte, large bool) bool {
	if p.stuck {
		return false
	}
	for i := range p.hoard {
		if h := &p.hoard[i]; within(h.lent, mem) {
			h.lent = bytes.Clone(h.lent) // the kernel keeps the old pages
		}
	}
	clear(mem)
	p.fresh = append(p.fresh, large)
	return true
}

// check looks for bytes of one connection in what the receiver of another one could read. Headers are none: no mark is
// as long in them.
func (p *hoarder) check(t *testing.T, marks map[uint32][]byte) {
	t.Helper()
	for _, h := range p.hoard {
		for qpn, list := range marks {
			for era, mark := range list {
				if (qpn != h.qpn || era != h.era) && bytes.Contains(h.lent, bytes.Repeat([]byte{mark}, 8)) {
					t.Fatalf("the receiver of QP %#x (%d) reads bytes for %#x (%d)", h.qpn, h.era, qpn, era)
				}
			}
		}
	}
}

// hoarding is a manual engine with a hoarder and n pairs of QPs that write: the peer's receives its bytes only, 0x10
// and more.
type hoarding struct {
	*manual
	p    *hoarder
	cq   *CQ
	qps  []*QP
	dest []uint32
	mark map[uint32][]byte // by QP number and era
}

func newHoarding(t *testing.T, n int) *hoarding {
	m, slow, cq, _, _ := slowEngine(t, never, never)
	h := &hoarding{manual: m, cq: cq, p: &hoarder{slowPort: slow, era: map[uint32]int{}}, mark: map[uint32][]byte{}}
	m.shards[0].port = h.p
	for range n {
		qa, qb := pair(t, m.Engine, cq, m.NewCQ(64, 0, silent{}))
		qa.QP.SetWindow(8*loanSlots*txBytes, nil)
		h.qps, h.dest = append(h.qps, qa), append(h.dest, qb.Num())
		h.mark[qb.Num()] = []byte{byte(0x10 + len(h.qps))}
	}
	return h
}

func (h *hoarding) markOf(qpn uint32, era int) byte { return h.mark[qpn][era] }

// write sends n bytes over connection i, all of them the mark of its receiver.
func (h *hoarding) write(t *testing.T, i, n int) {
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

// A receiver that acknowledges what it has not read never sees another connection's bytes in the memory that was lent
// to it, whichever connections take turns, and even after the slots have gone to others.
func TestLentMemoryHoldsOneConnection(t *testing.T) {
	h := newHoarding(t, maxLoanSets+3)
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
		t.Errorf("slots went to another connection %d times, %d batches were lent", len(h.p.fresh), h.p.lent)
	}
}

// Connections that send at the same time share no slot, nor do short messages of one get into the slot of another.
func TestLentMemoryOfConnectionsTogether(t *testing.T) {
	h := newHoarding(t, maxLoanSets+2)
	s := h.shards[0]
	for round := range 4 {
		n := 0
		h.write(t, 0, loanSlots*txBytes) // every slot holds something that is not read
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
	h := newHoarding(t, 1)
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

// Replacing pages is not free: it happens now and then, with large pages seldom. Connections without slots are copied.
// Slots whose pages cannot be replaced are not used any more.
func TestSlotsOfOtherConnections(t *testing.T) {
	h := newHoarding(t, maxLoanSets+2)
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
