package transport

import (
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A shortReceiver handles what it can by onShort if short is set, and all by onPacket otherwise.
type shortReceiver struct {
	*shortSender
	used map[wire.Opcode]int // packets that onShort has handled
	acks int                 // acknowledgements that PlaceAck has placed
}

func newShortReceiver(t *testing.T, short bool) *shortReceiver {
	s := &shortReceiver{shortSender: newShortSender(t, RC, short), used: make(map[wire.Opcode]int)}
	s.qp.attr.Access = uint32(mr.RemoteRead | mr.RemoteWrite)
	s.qp.RQ.Init(16, 2, false, testPD)
	return s
}

// arrives passes a packet to the QP.
func (s *shortReceiver) arrives(p *link.RxPacket) {
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

// onShortAck leaves the same completions and state as onResponse, whatever came before.
func TestOnShortAckIsOnResponse(t *testing.T) {
	used := 0
	for seed := range uint64(120) {
		long, short := newShortSender(t, RC, false), newShortSender(t, RC, false)
		long.qp.SigAll, short.qp.SigAll = seed%4 == 0, seed%4 == 0
		long.take = func(p *link.RxPacket) bool {
			long.qp.onPacket(long.now, p)
			return true
		}
		short.take = func(p *link.RxPacket) bool {
			h, qp := wire.BTH(p.Data), short.qp
			if h.Opcode() == wire.RC|wire.Ack && qp.usual(p, h) && qp.req.onShortAck(short.now, p, h) {
				used++
			} else {
				qp.onPacket(short.now, p)
			}
			return true
		}
		sameSteps(t, seed, long, short)
	}
	if used < 1000 {
		t.Errorf("onShortAck has handled %d acknowledgements, want thousands", used)
	}
}
