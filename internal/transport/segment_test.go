package transport

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A message is cut at the path MTU: first, middle, last or only packet, consecutive PSNs, headers where they belong.
func TestV_GEN_16_MessagesAreCutAtThePathMTU(t *testing.T) {
	names := map[Op][4]string{ // first, middle, last, only
		OpSend:    {"SEND FIRST", "SEND MIDDLE", "SEND LAST", "SEND ONLY"},
		OpSendImm: {"SEND FIRST", "SEND MIDDLE", "SEND LAST WITH IMMEDIATE", "SEND ONLY WITH IMMEDIATE"},
		OpSendInv: {"SEND FIRST", "SEND MIDDLE", "SEND LAST WITH INVALIDATE", "SEND ONLY WITH INVALIDATE"},
		OpWrite:   {"RDMA WRITE FIRST", "RDMA WRITE MIDDLE", "RDMA WRITE LAST", "RDMA WRITE ONLY"},
		OpWriteImm: {
			"RDMA WRITE FIRST",
			"RDMA WRITE MIDDLE",
			"RDMA WRITE LAST WITH IMMEDIATE",
			"RDMA WRITE ONLY WITH IMMEDIATE",
		},
	}
	for _, typ := range []Type{RC, UC} {
		for op, name := range names {
			if typ == UC && op == OpSendInv {
				continue
			}
			for mtu := 256; mtu <= 4096; mtu *= 2 {
				for _, n := range []int{0, 1, 3, mtu - 1, mtu, mtu + 1, 2*mtu - 2, 2 * mtu, 3*mtu + 5} {
					t.Run(fmt.Sprint(typ, "/", name[3], "/", mtu, "/", n), func(t *testing.T) {
						checkSegments(t, typ, op, name, mtu, n)
					})
				}
			}
		}
	}
}

func checkSegments(t *testing.T, typ Type, op Op, name [4]string, mtu, n int) {
	s := newSender(t, typ, func(_ *Config, a *Attr) { a.MTU, a.PKey = mtu, 0x8001 })
	s.post(op, s.sges(17, n, 1, 0, 0, mtu-1, 2), func(w *SendWQE) { w.Flags = Solicited })
	pkts := s.out()
	if want := max(1, (n+mtu-1)/mtu); len(pkts) != want {
		t.Fatalf("%d packets, want %d", len(pkts), want)
	}
	prefix := map[Type]string{RC: "RC ", UC: "UC "}[typ]
	var data []byte
	for i, p := range pkts {
		first, last := i == 0, i == len(pkts)-1
		want := name[1]
		switch {
		case first && last:
			want = name[3]
		case first:
			want = name[0]
		case last:
			want = name[2]
		}
		h := p.BTH()
		if p.Info().Name != prefix+want || h.PSN() != uint32(firstPSN+i) || h.DestQPN() != 0x22 || h.PKey() != 0x8001 {
			t.Errorf("packet %d: %s to %x, P_Key %x; want %s", i, show(p), h.DestQPN(), h.PKey(), want)
		}
		if h.AckReq() != (typ == RC && last) || h.Solicited() != (last && op != OpWrite) || !h.MigReq() || h.FECN() ||
			h.BECN() {
			t.Errorf("packet %d: BTH % x", i, []byte(h))
		}
		if p.Info().RETH != 0 && (p.RETH().Addr() != 0xA000 || p.RETH().RKey() != 0xB0B || p.RETH().DMALen() != uint32(n)) {
			t.Errorf("packet %d: RETH %x", i, []byte(p.RETH()))
		}
		if p.Info().Imm != 0 && p.Imm() != 0x01020304 || p.Info().IETH != 0 && p.IETH() != 0x01020304 {
			t.Errorf("packet %d: wrong immediate data", i)
		}
		if pad := p[len(p)-h.Pad():]; len(p)%4 != 0 || !bytes.Equal(pad, make([]byte, h.Pad())) {
			t.Errorf("packet %d: %d bytes, pad % x", i, len(p), pad)
		}
		data = append(data, p.Payload()...)
	}
	if !bytes.Equal(data, s.mem.Buf[17:17+n]) {
		t.Error("the payload is not the memory that the SGEs name")
	}
}

// The batch's memory holds bytes of earlier packets; pad bytes must be zero.
func TestPadIsZero(t *testing.T) {
	s := newSender(t, RC, nil)
	for i := range s.tx.Buf {
		s.tx.Buf[i] = 0xEE
	}
	s.send(1)
	p := s.out()[0]
	if !bytes.Equal(p[len(p)-3:], []byte{0, 0, 0}) {
		t.Errorf("pad % x", p[len(p)-3:])
	}
}

func TestV_SEND_11_InlineDataNeedsNoKey(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.MTU = 256 })
	text := bytes.Repeat([]byte("verbena "), 50)
	s.post(OpSend, nil, func(w *SendWQE) {
		w.Flags, w.Inline, w.Length = Inline, append(w.Inline, text...), uint32(len(text))
	})
	var got []byte
	for _, p := range s.out() {
		got = append(got, p.Payload()...)
	}
	if !bytes.Equal(got, text) {
		t.Errorf("sent %q", got)
	}
}

func TestV_SEND_17_ZeroLengthOfEveryKind(t *testing.T) {
	s := newSender(t, RC, nil)
	for _, op := range []Op{OpSend, OpSendImm, OpWrite, OpWriteImm, OpRead} {
		s.post(op, nil, nil)
	}
	s.sends(
		"RC SEND ONLY 1000 A",
		"RC SEND ONLY WITH IMMEDIATE 1001 A imm 1020304",
		"RC RDMA WRITE ONLY 1002 A reth a000 b0b 0",
		"RC RDMA WRITE ONLY WITH IMMEDIATE 1003 A reth a000 b0b 0 imm 1020304",
		"RC RDMA READ REQUEST 1004 A reth a000 b0b 0")
	s.data(wire.ReadRespOnly, 1004, 0)
	s.completes(
		"wr 1 status 0 op 0",
		"wr 2 status 0 op 0",
		"wr 3 status 0 op 1",
		"wr 4 status 0 op 1",
		"wr 5 status 0 op 2",
	)
	s.checkIdle()
}

// The key of an empty SGE is not checked, wherever it stands.
func TestEmptySGEsAreSkipped(t *testing.T) {
	s := newSender(t, RC, nil)
	none := SGE{Addr: 1, LKey: 0xBAD}
	a, b := s.sges(0, 1000)[0], s.sges(1000, 1000)[0]
	s.post(OpSend, []SGE{none, none, a, none, none, b, none}, nil)
	s.post(OpRead, []SGE{none, none, a, none, none, b, none}, nil)
	s.sends("RC SEND FIRST 1000 +1024", "RC SEND LAST 1001 A +976", "RC RDMA READ REQUEST 1002 A reth a000 b0b 2000")
	s.data(wire.ReadRespFirst, 1002, 1024)
	s.data(wire.ReadRespLast, 1003, 976)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 2 len 2000")
}

// READs take as many PSNs as their response has packets; atomics take one.
func TestReadAndAtomicRequests(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpRead, s.sges(0, 3000), nil)
	s.post(OpFetchAdd, s.sges(0, 8), nil)
	s.post(OpCmpSwap, s.sges(8, 8), nil)
	s.send(1)
	s.sends(
		"RC RDMA READ REQUEST 1000 A reth a000 b0b 3000",
		"RC FETCH ADD 1003 A atomic a000 b0b 3 0",
		"RC COMPARE SWAP 1004 A atomic a000 b0b 4 3",
		"RC SEND ONLY 1005 A +1")
}

func TestPSNsWrapAround(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.SQPSN = 0xFFFFFE })
	s.send(2500)
	s.post(OpRead, s.sges(0, 10), nil)
	s.sends(
		"RC SEND FIRST 16777214 +1024", "RC SEND MIDDLE 16777215 +1024", "RC SEND LAST 0 A +452",
		"RC RDMA READ REQUEST 1 A reth a000 b0b 10")
	s.nak(0xFFFFFF, wire.SynSeqErr)
	s.sends("RC SEND MIDDLE 16777215 A +1024", "RC SEND LAST 0 A +452", "RC RDMA READ REQUEST 1 A reth a000 b0b 10")
	s.data(wire.ReadRespOnly, 1, 10)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 2 len 10")
	s.checkIdle()
}

// The longest message, at the smallest MTU: 2^23 PSNs, half of the range.
func TestV_TR_06_MessagesOfTwoGiB(t *testing.T) {
	const part = 1 << 26
	size := uint32(maxMessage)
	if slow {
		size = 2 * part
	}
	big := &mr.Region{PD: testPD, Base: 1 << 40, Buf: make([]byte, part), Access: mr.LocalWrite}
	s := newSender(t, RC, func(c *Config, a *Attr) {
		a.MTU = 256
		c.SQ = NewSendQueue(4, 32, 0)
	})
	if err := s.qp.Regions.Add(big); err != nil {
		t.Fatal(err)
	}
	var sges []SGE
	for range size / part {
		sges = append(sges, SGE{Addr: big.Base, Length: part, LKey: big.LKey})
	}
	s.post(OpRead, sges, nil)
	r := &s.qp.req
	asked, at, pkt := uint64(0), uint32(firstPSN), make([]byte, 256)
	for len(s.cqes) == 0 {
		pkts := s.out()
		if len(pkts) == 0 {
			t.Fatalf("nothing leaves after %d bytes", asked)
		}
		for _, p := range pkts {
			h := p.RETH()
			if h.Addr() != 0xA000+asked || p.BTH().PSN() != (firstPSN+uint32(asked>>8))&0xFFFFFF {
				t.Fatalf("%s after %d bytes", show(p), asked)
			}
			asked += uint64(h.DMALen())
			for left := h.DMALen(); left > 0; left -= 256 {
				op := wire.ReadRespMiddle
				switch {
				case left == 256:
					op = wire.ReadRespLast
				case left == h.DMALen():
					op = wire.ReadRespFirst
				}
				r.onReadResponse(0, at, op, &link.RxPacket{Body: pkt})
				at = (at + 1) & 0xFFFFFF
			}
		}
	}
	s.completes(fmt.Sprint("wr 1 status 0 op 2 len ", size))
	s.checkIdle()
	if asked != uint64(size) || at != (firstPSN+size>>8)&0xFFFFFF {
		t.Errorf("asked for %d bytes, up to PSN %d", asked, at)
	}

	// One byte more is refused.
	s.post(OpWrite, sges, func(w *SendWQE) { w.Length = maxMessage + 1 })
	s.sends()
	s.completes("wr 2 status 1")
	s.is(Err)
}

// A long SEND is sent in turns, resumes in its middle after a NAK, and needs no memory of its own.
func TestLongMessageResumes(t *testing.T) {
	s := newSender(t, RC, func(c *Config, a *Attr) { c.SQ = NewSendQueue(4, 32, 0) })
	s.post(OpSend, s.sges(0, 500000, 1000, 3, 70000), nil)
	var got []byte
	at := uint32(firstPSN)
	for round := 0; len(s.cqes) == 0; round++ {
		pkts := s.out()
		if len(pkts) == 0 {
			t.Fatalf("nothing leaves after %d bytes", len(got))
		}
		// The peer accepts two thirds of the packets and reports the rest as missing.
		take := max(1, len(pkts)*2/3)
		for _, p := range pkts[:take] {
			if p.BTH().PSN() != at {
				t.Fatalf("%s, want PSN %d", show(p), at)
			}
			got = append(got, p.Payload()...)
			at++
		}
		if take < len(pkts) {
			s.nak(at, wire.SynSeqErr)
		} else {
			s.ack(at - 1)
		}
	}
	s.completes("wr 1 status 0 op 0")
	s.checkIdle()
	if !bytes.Equal(got, s.mem.Buf[:500000]) {
		t.Error("the bytes are not those of the memory")
	}
}

// Within a message acks are requested often enough to keep the window moving.
func TestAckRequestsWithinAMessage(t *testing.T) {
	for _, c := range []struct{ mtu, window int }{{256, 1 << 20}, {256, 0}, {1024, 64 << 10}, {4096, 10000}, {4096, 1}} {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.MTU = c.mtu })
		s.qp.SetWindow(c.window, nil)
		s.post(OpWrite, s.sges(0, 1<<19, 100), nil)
		limit := s.qp.req.win.limit
		flight, quiet, quietBytes, at := 0, 0, 0, uint32(firstPSN)
		for len(s.cqes) == 0 {
			pkts := s.out()
			for i, p := range pkts {
				flight += len(p.Payload()) + packetCost
				quiet++
				quietBytes += len(p.Payload()) + packetCost
				if quiet > maxQuiet+1 || quietBytes > max(limit/4, 0)+c.mtu+packetCost {
					t.Fatalf("%v: %d packets, %d bytes without an acknowledgement asked for", c, quiet, quietBytes)
				}
				if p.BTH().AckReq() {
					quiet, quietBytes = 0, 0
				}
				if i == len(pkts)-1 && !p.BTH().AckReq() {
					t.Fatalf("%v: the window is full and nothing asks for an acknowledgement", c)
				}
				at = p.BTH().PSN()
			}
			if len(pkts) == 0 || len(pkts) > 1 && flight > limit {
				t.Fatalf("%v: %d packets, %d bytes in flight", c, len(pkts), flight)
			}
			s.ack(at)
			flight = 0
		}
		s.checkIdle()
	}
}

func TestV_SEND_14_UDDestinationComesWithTheRequest(t *testing.T) {
	s := newSender(t, UD, nil)
	s.post(OpSend, s.sges(0, 5), func(w *SendWQE) { w.RemoteQKey = 0x7FFFFFFF })
	s.post(OpSendImm, s.sges(0, 1024), func(w *SendWQE) {
		w.Flags, w.RemoteQKey, w.RemoteQPN = Solicited, 0x80000000, wire.MulticastQPN
	})
	pkts := s.out()
	if got := pkts[1].BTH().DestQPN(); got != wire.MulticastQPN {
		t.Errorf("destination QPN %x", got)
	}
	same(t, "packets", []string{show(pkts[0]), show(pkts[1])}, []string{
		"UD SEND ONLY 1000 deth 7fffffff 11 +5",
		"UD SEND ONLY WITH IMMEDIATE 1001 SE deth 11111111 11 imm 1020304 +1024",
	})
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 0")
	s.checkIdle()
}

// A UC message completes when its last packet was sent.
func TestV_TR_03_UCCompletesWithoutAcknowledgement(t *testing.T) {
	s := newSender(t, UC, nil)
	s.send(1025)
	s.post(OpWrite, s.sges(0, 3), nil)
	s.sends("UC SEND FIRST 1000 +1024", "UC SEND LAST 1001 +1", "UC RDMA WRITE ONLY 1002 reth a000 b0b 3 +3")
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 1")
	s.checkIdle()
}

// A full batch in the middle of a message, or an exhausted budget, loses nothing.
func TestTransmitInSmallTurns(t *testing.T) {
	for _, typ := range []Type{RC, UC} {
		s := newSender(t, typ, nil)
		s.post(OpSend, s.sges(3, 10000, 999, 1, 1024), nil)
		s.post(OpSend, s.sges(50, 10, 3), nil)
		small := link.NewTxBatch(2, 1024+64)
		var got []byte
		for turns := 0; ; turns++ {
			more := s.qp.Transmit(0, small, 1)
			if len(small.Packets) > 1 {
				t.Fatal("more than the budget")
			}
			for i := range small.Packets {
				b := small.Bytes(i)
				got = append(got, wire.Packet(b[:len(b)-wire.ICRCLen]).Payload()...)
			}
			if turns%3 == 0 { // every third batch is not sent, so the next packet does not fit
				more = s.qp.Transmit(0, small, 5)
				for i := 1; i < len(small.Packets); i++ {
					b := small.Bytes(i)
					got = append(got, wire.Packet(b[:len(b)-wire.ICRCLen]).Payload()...)
				}
			}
			small.Reset()
			if !more {
				break
			}
		}
		want := append(bytes.Clone(s.mem.Buf[3:10003]), s.mem.Buf[50:60]...)
		if !bytes.Equal(got, want) {
			t.Errorf("type %d: wrong bytes", typ)
		}
		if s.qp.Pending() {
			t.Errorf("type %d: something is left", typ)
		}
	}
}

// The longest message of a UD QP is that of its port, whatever the path MTU.
func TestV_TR_06_LongestDatagram(t *testing.T) {
	for port, longest := range map[int]int{2048: 2048, 0: wire.MaxPayload} {
		s := newSender(t, UD, func(c *Config, a *Attr) {
			a.MTU = 256
			if c.PortMTU = nil; port > 0 {
				c.PortMTU = func() int { return port }
			}
		})
		s.send(longest)
		s.sends(fmt.Sprintf("UD SEND ONLY 1000 deth 77 11 +%d", longest))
		s.completes("wr 1 status 0 op 0")
		s.send(longest + 1)
		s.sends()
		s.completes("wr 2 status 1")
	}
}

// The longest message of a UD QP follows its port, which has the MTU of a network interface. A message that has begun
// with the MTU of before is sent as a whole.
func TestV_TR_06_LongestDatagramFollowsThePort(t *testing.T) {
	mtu := 1024
	s := newSender(t, UD, func(c *Config, _ *Attr) { c.PortMTU = func() int { return mtu } })
	mtu = 4096
	s.send(4096)
	s.sends("UD SEND ONLY 1000 deth 77 11 +4096")
	s.completes("wr 1 status 0 op 0")
	s.send(4096)
	if full := link.NewTxBatch(1, 2000); !s.qp.Transmit(s.now, full, 1) || !full.Empty() {
		t.Fatal("a batch without room")
	}
	mtu = 512
	s.sends("UD SEND ONLY 1001 deth 77 11 +4096")
	s.completes("wr 2 status 0 op 0")
	s.send(513)
	s.sends()
	s.completes("wr 3 status 1")
}

// A SEND or WRITE needs no right of its memory but to be registered.
func TestSendFromReadOnlyMemory(t *testing.T) {
	s := newSender(t, RC, nil)
	list := s.readOnly(2000)
	s.post(OpSend, list, nil)
	s.post(OpWrite, list, nil)
	if n := len(s.out()); n != 4 {
		t.Errorf("%d packets, want 4", n)
	}
	s.is(RTS)
}
