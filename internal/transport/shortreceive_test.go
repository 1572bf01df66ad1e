package transport

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A shortReceiver handles what it can by onShort if short is set, and all by onPacket otherwise.
type shortReceiver struct {
	*shortSender
	used map[wire.Opcode]int // packets that onShort has handled
	acks int                 // acknowledgements that PlaceAck has placed

	counts   bool // packets that arrive are counted requests
	acked    int  // those that Count has acknowledged
	ackedPSN uint32
}

// Count has room mostly.
func (s *shortReceiver) Count(path *link.Path, qpn uint32) bool {
	if path != s.qp.path || qpn != s.qp.attr.DestQPN {
		panic("another peer")
	}
	return s.now%7000 != 0
}

func newShortReceiver(t *testing.T, short bool) *shortReceiver {
	s := &shortReceiver{shortSender: newShortSender(t, RC, short), used: make(map[wire.Opcode]int)}
	s.qp.attr.Access = uint32(mr.RemoteRead | mr.RemoteWrite)
	s.qp.RQ.Init(16, 2, false, testPD)
	return s
}

// arrives passes a packet to the QP.
func (s *shortReceiver) arrives(p *link.RxPacket) {
	if s.counts {
		p.Counter = s
		defer func() {
			if s.qp.Count(p) {
				s.acked, s.ackedPSN = s.acked+1, wire.BTH(p.Data).PSN()
			}
		}()
	}
	if s.short && s.qp.onShort(s.now, p) {
		s.used[wire.BTH(p.Data).Opcode()]++
		return
	}
	s.qp.onPacket(s.now, p)
}

// state describes all that later packets depend on, and the memory.
func (s *shortReceiver) state() string {
	r := &s.qp.resp
	held := ""
	if r.held {
		held = fmt.Sprint(r.recv.wqe, r.recv.room, r.recv.got, r.recv.sge, r.recv.off)
	}
	q := s.qp.RQ
	return s.shortSender.state() + fmt.Sprintf("\nepsn %d msn %d fresh %v gap %v lost %d dup %d phase %d held %s write %v",
		r.epsn, r.msn, r.fresh, r.gapReported, r.lost, r.dupNext, r.phase, held, r.write) +
		fmt.Sprintf("\nreplies %d %d %d %+v receives %d %d\nevents %q memory %#x",
			r.head, r.kept, r.todo, r.tail, q.taken, q.fill, s.events, crc32.ChecksumIEEE(s.mem.Buf[:8192]))
}

// step does something at random; equal rnd do the same.
func (s *shortReceiver) step(rnd *rand.Rand) {
	s.room = 1 << 20
	switch k := rnd.IntN(100); {
	case k < 40:
		s.postReceive(rnd)
	case k < 45 && s.qp.SQ.Posted()-s.qp.SQ.polled.Load() < 60:
		s.postAny(rnd)
	case k < 55:
		s.arrives(s.answer(rnd))
	case k == 55:
		s.qp.SetKeepAlive(s.now, []time.Duration{0, 0, 0, 1e9}[rnd.IntN(4)])
	case k < 57:
		s.after(int64(rnd.IntN(2e6)))
	default:
		s.arrives(s.request(rnd))
	}
	if rnd.IntN(4) > 0 {
		s.tx.Reset()
		if s.short && s.qp.Due() == DueAck {
			if mine, placed := s.qp.PlaceAck(s.places); mine && placed {
				s.acks++
				return
			}
		}
		s.qp.Transmit(s.now, s.tx, 32)
	}
}

// postReceive posts a receive, mostly an ordinary one.
func (s *shortReceiver) postReceive(rnd *rand.Rand) {
	n := 2048
	if rnd.IntN(50) == 0 {
		n = 8
	}
	sges := s.sges(rnd.IntN(1000), n)
	switch rnd.IntN(200) {
	case 0:
		sges = nil
	case 1:
		sges[0].LKey++
	case 2, 3, 4, 5, 6, 7, 8, 9:
		sges = s.sges(rnd.IntN(1000), n, 5)
	}
	_ = s.qp.RQ.Post(rnd.Uint64(), sges) // it may be full
}

// request makes a request, mostly the one that is expected.
func (s *shortReceiver) request(rnd *rand.Rand) *link.RxPacket {
	op, n := wire.SendOnly, []int{0, 1, 7, 8, 33, 64, 1023, 1024}[rnd.IntN(8)]
	switch phase := s.qp.resp.phase; {
	case rnd.IntN(8) == 0:
	case phase == inSend:
		op, n = wire.SendLast, max(n, 1)
	case phase == inWrite:
		op, n = wire.WriteLast, 1
	}
	switch rnd.IntN(200) {
	case 0:
		n = 1028 // above the MTU
	case 1:
		op = wire.SendOnlyInv
	case 2:
		op = wire.SendLast
	case 3, 4, 5, 6:
		op = wire.ReadRequest
	case 7, 8, 9, 10:
		op, n = wire.SendFirst, 1024
	case 11, 12, 13, 14:
		op = wire.WriteOnly
	case 15, 16, 17, 18:
		op, n = wire.WriteFirst, 1024
	case 19, 20, 21, 22:
		op = wire.SendOnlyImm
	}
	seq := s.qp.resp.epsn
	if rnd.IntN(10) == 0 {
		seq += uint32(rnd.IntN(5)) - 2
	}
	return s.packet(rnd, op, seq, n)
}

// answer makes an answer to what was sent, mostly an acknowledgement.
func (s *shortReceiver) answer(rnd *rand.Rand) *link.RxPacket {
	r := &s.qp.req
	op := wire.Ack
	if rnd.IntN(100) == 0 {
		op = wire.ReadRespOnly
	}
	p := s.packet(rnd, op, r.una+uint32(rnd.IntN(4))-uint32(rnd.IntN(2)), 0)
	syndrome := byte(wire.SynAck | 31)
	if rnd.IntN(12) == 0 {
		syndrome = []byte{wire.SynSeqErr, wire.SynRNR | 1}[rnd.IntN(2)]
	}
	wire.AETH(p.Data[wire.BTHLen:]).Put(syndrome, rnd.Uint32())
	return p
}

// packet makes a packet, mostly without anything unusual.
func (s *shortReceiver) packet(rnd *rand.Rand, op wire.Opcode, seq uint32, n int) *link.RxPacket {
	in := (wire.RC | op).Info()
	pad := -n & 3
	b := make([]byte, in.Len+n+pad)
	for i := range b[in.Len : in.Len+n] {
		b[in.Len+i] = byte(rnd.Uint32())
	}
	key := uint16(0xFFFF)
	if rnd.IntN(30) == 0 {
		key = []uint16{0x7FFF, 0x8001, 0}[rnd.IntN(3)]
	}
	wire.BTH(b).Put(wire.RC|op, pad, key, s.qp.Num, seq, rnd.Uint32()&(wire.BTHSolicited|wire.BTHAckReq))
	if in.RETH != 0 {
		wire.RETH(b[in.RETH:]).Put(memBase+uint64(rnd.IntN(1000)), s.mem.RKey, uint32(n))
	}
	if op == wire.WriteFirst {
		wire.RETH(b[in.RETH:]).Put(memBase, s.mem.RKey, uint32(n)+1)
	}
	p := &link.RxPacket{Data: b, Src: dstAddr, Dst: srcAddr}
	switch rnd.IntN(40) {
	case 0:
		p.Src = netip.MustParseAddr("192.0.2.3")
	case 1:
		p.TClass = wire.ECNMarked
	case 2:
		p.Data, p.Body = b[:in.Len:in.Len], append([]byte{}, b[in.Len:in.Len+n]...)
		p.Data[1] &^= 0x30
	}
	return p
}

// onShort leaves the same completions, replies, memory and state as onPacket, whatever came before, and PlaceAck the
// same as Transmit.
func TestOnShortIsOnPacket(t *testing.T) {
	acks, used := 0, make(map[wire.Opcode]int)
	for seed := range uint64(200) {
		long, short := newShortReceiver(t, false), newShortReceiver(t, true)
		for n := range 200 {
			sameStep(t, seed, n, long, short)
		}
		for op, n := range short.used {
			used[op] += n
		}
		acks += short.acks
	}
	if acks < 1000 {
		t.Errorf("PlaceAck has placed %d acknowledgements, want thousands", acks)
	}
	if used[wire.SendOnly] < 2000 || used[wire.Ack] < 500 {
		t.Errorf("onShort has handled %v, want thousands", used)
	}
}

// A packet is plain if it is the next SEND, and the QP has no packets to send of which Due would tell.
func TestPlainPackets(t *testing.T) {
	var psn uint32 // of the next packet
	for _, c := range []struct {
		name   string
		op     wire.Opcode
		change func(qp *QP)
		want   bool
	}{
		{"a SEND", wire.RC | wire.SendOnly, func(*QP) {}, true},
		{"a SEND with immediate data", wire.RC | wire.SendOnlyImm, func(*QP) {}, false},
		{"an ACK", wire.RC | wire.Ack, func(*QP) {}, false},
		{"another PSN", wire.RC | wire.SendOnly, func(qp *QP) { qp.resp.epsn++ }, false},
		{"a CNP to send", wire.RC | wire.SendOnly, func(qp *QP) { qp.resp.cnpDue = true }, false},
		{"a pause", wire.RC | wire.SendOnly, func(qp *QP) { qp.pace.until = 1 }, false},
		{"keep-alive", wire.RC | wire.SendOnly, func(qp *QP) { qp.SetKeepAlive(0, time.Second) }, false},
	} {
		s := newShortReceiver(t, true)
		arrives := func(op wire.Opcode) bool {
			if err := s.qp.RQ.Post(1, s.sges(0, 8)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, wire.BTHLen+4)
			wire.BTH(b).Put(op, 0, 0xFFFF, s.qp.Num, psn, 0)
			psn++
			return s.qp.OnPacket(s.now, &link.RxPacket{Src: dstAddr, Dst: srcAddr, Data: b})
		}
		psn = s.qp.resp.epsn
		if arrives(wire.RC | wire.SendOnly) {
			t.Error("the first packet is plain")
		}
		c.change(s.qp)
		if got := arrives(c.op); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// sameAsOnPacket compares a sender that handles all packets by onPacket with one that handles by short what that takes.
// It returns the number of packets that short has taken.
func sameAsOnPacket(t *testing.T, short func(s *shortSender, p *link.RxPacket) (taken bool)) (used int) {
	t.Helper()
	for seed := range uint64(120) {
		a, b := newShortSender(t, RC, false), newShortSender(t, RC, false)
		a.qp.SigAll, b.qp.SigAll = seed%4 == 0, seed%4 == 0
		a.take = func(p *link.RxPacket) bool {
			a.qp.onPacket(a.now, p)
			return true
		}
		b.take = func(p *link.RxPacket) bool {
			h := wire.BTH(p.Data)
			if h.Opcode() == wire.RC|wire.Ack && wire.AETH(p.Data[wire.BTHLen:]).IsAck() && short(b, p) {
				used++
			} else {
				b.qp.onPacket(b.now, p)
			}
			return true
		}
		sameSteps(t, seed, a, b)
	}
	return used
}

// onShortAck leaves the same completions and state as onResponse, whatever came before.
func TestOnShortAckIsOnResponse(t *testing.T) {
	used := sameAsOnPacket(t, func(s *shortSender, p *link.RxPacket) bool {
		h := wire.BTH(p.Data)
		return s.qp.usual(p, h) && s.qp.req.onShortAck(s.now, h.PSN())
	})
	if used < 1000 {
		t.Errorf("onShortAck has handled %d acknowledgements, want thousands", used)
	}
}

// OnCounted leaves the same completions and state as an ACK packet, whatever came before.
func TestOnCountedIsOnResponse(t *testing.T) {
	used := sameAsOnPacket(t, func(s *shortSender, p *link.RxPacket) bool {
		qp, at := s.qp, wire.BTH(p.Data).PSN()
		if qp.State() != RTS || qp.req.answerBefore(at) {
			return false
		}
		qp.OnCounted(s.now, &link.Ack{From: qp, PSN: at, Life: qp.req.life})
		return true
	})
	if used < 1000 {
		t.Errorf("OnCounted has handled %d acknowledgements, want thousands", used)
	}
}

// answerBefore reports whether a request with data to be answered comes before the end of the PSN, in which case no
// request with this PSN is counted.
func (r *requester) answerBefore(at uint32) bool {
	for i := r.head; i != r.begun; i++ {
		if w := r.sq.At(i); w.waitsForAnswer() && !psn.Less(at, w.first) {
			return true
		}
	}
	return false
}

// A request is counted unless one before it waits for an answer with data.
func TestOnlyShortRequestsAreCounted(t *testing.T) {
	s := newShortSender(t, RC, true)
	s.room, s.train = 1000, 1
	send := func(want int) {
		t.Helper()
		s.postShort(1)
		s.flush()
		if len(s.counted) != want {
			t.Errorf("%d requests were counted, want %d", len(s.counted), want)
		}
	}
	send(1)
	send(2)
	s.post(OpRead, s.sges(0, 8), nil)
	s.flush()
	send(2)
	send(2)
	s.answerAll()
	send(3)
	qp := s.qp
	if got, want := s.counted[2], (link.Ack{From: qp, PSN: qp.req.una, Life: qp.req.life}); got != want {
		t.Errorf("counted as %+v, want %+v", got, want)
	}
}

// OnCounted ignores what is not of the present connection, and what is not outstanding.
func TestStaleCountsAreIgnored(t *testing.T) {
	s := newShortSender(t, RC, true)
	s.room = 1000
	for range 2 {
		s.postShort(1)
		s.flush()
	}
	before, una, life := s.state(), s.qp.req.una, s.qp.req.life
	for _, a := range []link.Ack{{PSN: una, Life: life - 1}, {PSN: una + 2, Life: life}, {PSN: una - 1, Life: life}} {
		s.qp.OnCounted(s.now, &a)
		s.qp.req.heard = false
		if got := s.state(); got != before {
			t.Errorf("%+v: state\n%s\nwant\n%s", a, got, before)
		}
	}
	a := link.Ack{PSN: una + 1, Life: life}
	s.modify(Err, Attr{}, 0)
	s.completed()
	before = s.state()
	if s.qp.OnCounted(s.now, &a); s.state() != before {
		t.Errorf("in ERR: state\n%s\nwant\n%s", s.state(), before)
	}
	s.modify(Reset, Attr{}, 0)
	if s.qp.req.life == life {
		t.Error("RESET leaves the life")
	}
}

// Count leaves the same completions, memory and state as an ACK packet that is sent at once, and counts only what that
// would acknowledge.
func TestCountIsAck(t *testing.T) {
	counted, not := 0, 0
	for seed := range uint64(200) {
		long, short := newShortReceiver(t, true), newShortReceiver(t, true)
		for n := range 200 {
			rnd := func() *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(n))) }
			long.step(rnd())
			short.counts = true
			short.step(rnd())
			for _, s := range []*shortReceiver{long, short} {
				for more := true; more; more = s.qp.resp.pending() {
					s.tx.Reset()
					s.qp.Transmit(s.now, s.tx, 32)
				}
				s.now += 1000
			}
			var acks [][]byte
			for i, p := range long.packets { // those that short has not sent
				if at := i - len(acks); at == len(short.packets) || !bytes.Equal(p, short.packets[at]) {
					acks = append(acks, p)
				}
			}
			if k := len(acks); k > 1 || k != short.acked {
				t.Fatalf("seed %d step %d: %d packets fewer, %d counted", seed, n, k, short.acked)
			} else if k == 1 {
				counted++
				if h := wire.BTH(acks[0]); h.Opcode() != wire.RC|wire.Ack || h.PSN() != short.ackedPSN ||
					!wire.AETH(h[wire.BTHLen:]).IsAck() {
					t.Fatalf("seed %d step %d: counted PSN %d, want packet %x", seed, n, short.ackedPSN, acks[0])
				}
			} else {
				not++
			}
			long.packets, short.packets, short.acked = nil, nil, 0
			if got, want := short.state(), long.state(); got != want {
				t.Fatalf("seed %d step %d: state\n%s\nwant\n%s", seed, n, got, want)
			}
			if got, want := short.completed(), long.completed(); got != want {
				t.Fatalf("seed %d step %d: completions\n%s\nwant\n%s", seed, n, got, want)
			}
		}
	}
	if counted < 1000 || not < 1000 {
		t.Errorf("%d counted, %d not; want thousands", counted, not)
	}
}

// A QP in REARM learns from the M bit of acknowledgements that its peer is ready to migrate. Those of counted requests
// have none.
func TestCountedRequestsAndMigration(t *testing.T) {
	alt := Attr{Alt: link.Path{Src: srcAddr, Dst: netip.MustParseAddr("192.0.2.9")}, Mig: Rearm}
	from, to := newShortSender(t, RC, true), newShortReceiver(t, true)
	for _, s := range []*shortSender{from, to.shortSender} {
		s.room, s.train = 1000, 1
		s.modify(RTS, alt, MaskAltPath|MaskMigState)
	}
	to.now, to.qp.resp.epsn = 1, firstPSN
	for range 3 {
		if err := to.qp.RQ.Post(1, to.sges(0, 64)); err != nil {
			t.Fatal(err)
		}
		from.postShort(1)
		from.flush()
		p := &link.RxPacket{Data: from.packets[len(from.packets)-1], Src: dstAddr, Dst: srcAddr}
		if len(from.counted) > 0 {
			p.Counter = to
		}
		to.qp.OnPacket(to.now, p)
		if p.Counter != nil && to.qp.Count(p) {
			from.qp.OnCounted(from.now, &from.counted[len(from.counted)-1])
			continue
		}
		to.packets = nil
		to.qp.Transmit(to.now, to.tx, 32)
		from.qp.OnPacket(from.now, &link.RxPacket{Data: to.packets[0], Src: dstAddr, Dst: srcAddr})
	}
	if got := to.qp.Attr().Mig; got != Armed {
		t.Errorf("the receiver has migration state %d, want ARMED", got)
	}
	if got := from.qp.Attr().Mig; got != Armed {
		t.Errorf("the sender has migration state %d, want ARMED", got)
	}
}
