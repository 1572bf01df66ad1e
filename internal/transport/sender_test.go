package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// sender is a QP whose requester is tested; the test plays the peer.
type sender struct {
	take   func(p *link.RxPacket) bool // handles a reply instead of OnPacket, unless it returns false
	t      *testing.T
	qp     *QP
	tx     *link.TxBatch
	now    int64
	mem    *mr.Region // one region with every right
	wrid   uint64     // of the last work request posted
	cqes   []CQE
	events []string
}

const (
	testPD   = 7
	firstPSN = 1000
	memBase  = 0x10000
	memSize  = 1 << 20
	msec     = int64(1e6)
)

var (
	srcAddr = netip.MustParseAddr("192.0.2.1")
	dstAddr = netip.MustParseAddr("192.0.2.2")
)

func (s *sender) Push(e *CQE) {
	notBefore(s.t, s.qp, e)
	s.cqes = append(s.cqes, *e)
}

// notBefore checks that a QP has left its state before the completion of what has failed can be polled. Operations on
// the tag list fail without that.
func notBefore(t testing.TB, qp *QP, e *CQE) {
	fails := e.Status != Success && e.Status != TMErr && e.Status != TMRndvIncomplete
	if st := qp.State(); fails && st != Err && st != SQE {
		t.Errorf("request %d ended with status %d while the QP was in state %d", e.WRID, e.Status, st)
	}
}

func (s *sender) Raise(_ *QP, ev Event) {
	s.events = append(s.events, fmt.Sprintf("event %d", ev))
}
func (s *sender) StateChanged(_ *QP, st State) {
	s.events = append(s.events, fmt.Sprintf("state %d", st))
}

// Pending reports whether Transmit has something to send.
func (qp *QP) Pending() bool { return qp.resp.cnpDue || qp.resp.pending() || qp.req.pending() }

// noise is the initial content of the region.
var noise = func() []byte {
	rnd, b := rand.New(rand.NewPCG(1, 2)), make([]byte, memSize)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}()

// rtsAttr are the attributes of the tests' RC QPs in RTS.
func rtsAttr() Attr {
	return Attr{
		Path: link.Path{Src: srcAddr, Dst: dstAddr}, DestQPN: 0x22, MTU: 1024, PKey: 0xFFFF, QKey: 0x11111111,
		RQPSN: 5000, SQPSN: firstPSN, MaxRdAtomic: 4, MaxDestRdAtom: 4,
		MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

const everyMask = MaskState | MaskAccess | MaskPKeyIndex | MaskQKey | MaskAV | MaskPathMTU | MaskTimeout |
	MaskRetryCnt |
	MaskRNRRetry | MaskRQPSN | MaskMaxRdAtomic | MaskMinRNRTimer | MaskSQPSN | MaskMaxDestRdAtom | MaskDestQPN

// newSender returns a QP in RTS. change may be nil.
func newSender(t *testing.T, typ Type, change func(c *Config, a *Attr)) *sender {
	t.Helper()
	s := &sender{t: t, tx: link.NewTxBatch(64, 64*(wire.MaxPacketLen+wire.ICRCLen))}
	table := mr.NewTable(100, mr.Counted())
	s.mem = &mr.Region{
		PD: testPD, Base: memBase, Buf: make([]byte, memSize),
		Access: mr.LocalWrite | mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic,
	}
	copy(s.mem.Buf, noise)
	if err := table.Add(s.mem); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Num: 0x11, Type: typ, PD: testPD, SigAll: true, PortMTU: func() int { return 1024 }, SQ: NewSendQueue(64, 8, 512),
		RQ: NewRecvQueue(4, 1, false, testPD), SendCQ: s, RecvCQ: s, Regions: table, Host: s,
	}
	a := rtsAttr()
	if change != nil {
		change(&c, &a)
	}
	s.qp = NewQP(c)
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, a, everyMask)
	}
	return s
}

// unregister deregisters the memory.
func (s *sender) unregister() {
	s.t.Helper()
	if err := s.qp.Regions.Remove(s.mem); err != nil {
		s.t.Fatal(err)
	}
}

func (s *sender) modify(st State, a Attr, m Mask) {
	s.t.Helper()
	a.State = st
	if err := s.qp.Modify(s.now, &a, m|MaskState); err != nil {
		s.t.Fatalf("modify to %d: %v", st, err)
	}
}

// sges cuts n bytes of the region, from offset at on, into pieces of the given lengths; the last one takes the rest.
func (s *sender) sges(at, n int, cuts ...int) (l []SGE) {
	for _, c := range append(cuts, n) {
		c = min(c, n)
		l = append(l, SGE{Addr: memBase + uint64(at), Length: uint32(c), LKey: s.mem.LKey})
		at, n = at+c, n-c
	}
	return l
}

// post posts one work request of the given SGEs; change may be nil.
func (s *sender) post(op Op, sges []SGE, change func(w *SendWQE)) {
	s.t.Helper()
	q := s.qp.SQ
	q.Lock()
	defer q.Unlock()
	w := q.Next()
	if w == nil {
		s.t.Fatal("the send queue is full")
	}
	s.wrid++
	keep := w.requesterWQE
	*w = SendWQE{
		WRID: s.wrid, Op: op, SGEs: append(w.SGEs, sges...), Inline: w.Inline,
		RemoteAddr: 0xA000, RKey: 0xB0B, Imm: 0x01020304,
	}
	w.requesterWQE = keep
	*q.More(w) = SendMore{Path: s.qp.path, RemoteQPN: 0x33, RemoteQKey: 0x77, CompareAdd: 3, Swap: 4}
	for _, g := range sges {
		w.Length += g.Length
	}
	if change != nil {
		change(w)
	}
	q.Commit()
	q.Publish()
	s.qp.OnDoorbell(s.now)
}

// send posts a SEND of n bytes.
func (s *sender) send(n int) { s.t.Helper(); s.post(OpSend, s.sges(0, n), nil) }

// out returns the packets that the QP sends now.
func (s *sender) out() (pkts []wire.Packet) {
	s.t.Helper()
	for more := true; more; {
		if more = s.qp.Transmit(s.now, s.tx, 64); more && s.tx.Empty() {
			s.t.Fatal("Transmit wants to go on but sends nothing")
		}
		for i := range s.tx.Packets {
			b := s.tx.Bytes(i)
			p, err := wire.Parse(bytes.Clone(b[:len(b)-wire.ICRCLen]))
			if err != nil {
				s.t.Fatalf("packet %x: %v", b, err)
			}
			pkts = append(pkts, p)
		}
		s.tx.Reset()
	}
	if s.qp.Pending() {
		s.t.Fatal("Transmit said that there is no more, Pending that there is")
	}
	return pkts
}

// sends checks the packets sent now: one line per packet, see show.
func (s *sender) sends(want ...string) {
	s.t.Helper()
	var got []string
	for _, p := range s.out() {
		got = append(got, show(p))
	}
	same(s.t, "packets", got, want)
}

// completes checks the completions since the last call.
func (s *sender) completes(want ...string) {
	s.t.Helper()
	var got []string
	for _, e := range s.cqes {
		l := fmt.Sprintf("wr %d status %d", e.WRID, e.Status)
		if e.Status == Success {
			l += fmt.Sprintf(" op %d", e.Op)
		}
		if e.ByteLen > 0 {
			l += fmt.Sprintf(" len %d", e.ByteLen)
		}
		if (e.Cause == nil) != (e.Status == Success) ||
			e.Cause != nil && (e.Cause.Reason == "" || e.Cause.Status != e.Status) {
			s.t.Errorf("wr %d: status %d with cause %+v", e.WRID, e.Status, e.Cause)
		}
		if e.QPN != s.qp.Num || e.QP != s.qp || !e.Send || e.Solicited != (e.Status != Success) {
			s.t.Errorf("wr %d: completion %+v", e.WRID, e)
		}
		s.qp.SQ.Release(e.Slot)
		got = append(got, l)
	}
	s.cqes = s.cqes[:0]
	same(s.t, "completions", got, want)
}

// raises checks the events since the last call.
func (s *sender) raises(want ...string) {
	s.t.Helper()
	same(s.t, "events", s.events, want)
	s.events = nil
}

func (s *sender) is(st State) {
	s.t.Helper()
	if got := s.qp.State(); got != st {
		s.t.Fatalf("the QP is in state %d, want %d", got, st)
	}
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if len(got) == 0 && len(want) == 0 || reflect.DeepEqual(got, want) {
		return
	}
	t.Fatalf("%s:\n  %s\nwant:\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
}

// show returns a packet as one line: operation, PSN, A and SE bits, extended headers, payload length.
func show(p wire.Packet) string {
	in, h := p.Info(), p.BTH()
	l := fmt.Sprintf("%s %d", in.Name, h.PSN())
	if h.AckReq() {
		l += " A"
	}
	if h.Solicited() {
		l += " SE"
	}
	if in.FETH != 0 {
		l += fmt.Sprintf(" flush %d %d", p.FETH().Placement(), p.FETH().Selectivity())
	}
	if in.RETH != 0 {
		l += fmt.Sprintf(" reth %x %x %d", p.RETH().Addr(), p.RETH().RKey(), p.RETH().DMALen())
	}
	if in.AtomicETH != 0 {
		a := p.AtomicETH()
		l += fmt.Sprintf(" atomic %x %x %d %d", a.Addr(), a.RKey(), a.SwapAdd(), a.Compare())
	}
	if in.DETH != 0 {
		l += fmt.Sprintf(" deth %x %x", p.DETH().QKey(), p.DETH().SrcQPN())
	}
	if in.Imm != 0 {
		l += fmt.Sprintf(" imm %x", p.Imm())
	}
	if in.IETH != 0 {
		l += fmt.Sprintf(" inv %x", p.IETH())
	}
	if n := len(p.Payload()); n > 0 {
		l += fmt.Sprintf(" +%d", n)
	}
	return l
}

// reply delivers a response packet.
func (s *sender) reply(op wire.Opcode, at uint32, syndrome uint8, value uint64, data []byte) {
	in := op.Info()
	pad := -len(data) & 3
	b := make([]byte, in.Len+len(data)+pad)
	wire.BTH(b).Put(op, pad, 0xFFFF, s.qp.Num, at, 0)
	if in.AETH != 0 {
		wire.AETH(b[in.AETH:]).Put(syndrome, 0)
	}
	if in.AtomicAck != 0 {
		for i := range 8 {
			b[in.AtomicAck+i] = byte(value >> (56 - 8*i))
		}
	}
	copy(b[in.Len:], data)
	p := &link.RxPacket{Data: b, Src: dstAddr, Dst: srcAddr}
	if s.take == nil || !s.take(p) {
		s.qp.OnPacket(s.now, p)
	}
}

func (s *sender) ack(at uint32)                 { s.reply(wire.Ack, at, wire.SynAck, 0, nil) }
func (s *sender) nak(at uint32, syndrome uint8) { s.reply(wire.Ack, at, syndrome, 0, nil) }
func (s *sender) atomicAck(at uint32, value uint64) {
	s.reply(wire.AtomicAck, at, wire.SynAck, value, nil)
}
func (s *sender) data(o wire.Opcode, at uint32, n int) {
	s.reply(o, at, wire.SynAck, 0, pattern(at, n))
}

// pattern returns the payload of the READ response at PSN at.
func pattern(at uint32, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(at*7 + uint32(i))
	}
	return b
}

// after advances the time and runs the QP's timer.
func (s *sender) after(d int64) {
	s.now += d
	if s.qp.Deadline() <= s.now {
		s.qp.OnTimer(s.now)
	}
}

// timeout advances the time to the ACK timeout. Early retransmissions before it are lost.
func (s *sender) timeout() {
	s.t.Helper()
	before, paused := s.qp.Counters.LocalAckTimeoutErr, s.qp.req.rnrUntil != 0
	for over := false; !over; {
		d := s.qp.Deadline()
		if d == Never {
			s.t.Fatal("the QP waits for nothing")
		}
		s.now = d - 1
		s.qp.OnTimer(s.now)
		if s.qp.Pending() {
			s.t.Fatal("the timer ran early")
		}
		s.after(1)
		if over = paused || s.qp.Counters.LocalAckTimeoutErr != before; !over {
			s.out()
		}
	}
}

// checkIdle checks the state of a QP that has finished everything.
func (s *sender) checkIdle() {
	s.t.Helper()
	r := &s.qp.req
	if r.win.flight != 0 || r.reads != 0 || r.una != r.nxt || r.nxt != r.max || r.head != r.cur || r.cur != r.begun {
		s.t.Fatalf("the requester is not idle: %d bytes in flight, %d reads, PSNs %d %d %d, queue %d %d %d",
			r.win.flight, r.reads, r.una, r.nxt, r.max, r.head, r.cur, r.begun)
	}
	if d := s.qp.Deadline(); d != Never {
		s.t.Fatalf("an idle QP has the deadline %d", d)
	}
}
