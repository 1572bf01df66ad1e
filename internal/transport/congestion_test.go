package transport

import (
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// arrives delivers a packet of the peer whose IP header has traffic class tclass.
func (s *sender) arrives(f wire.Fields, tclass uint8) {
	f.PKey, f.DestQPN = 0xFFFF, s.qp.Num
	s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: dstAddr, Dst: srcAddr, TClass: tclass})
}

func newMarked(t *testing.T, typ Type) *sender {
	return newSender(t, typ, func(c *Config, a *Attr) {
		c.RQ = NewRecvQueue(16, 1, false, testPD)
		a.RQPSN, a.Path.TClass = firstPSN, wire.ECNCapable
	})
}

// A marked packet is answered by one congestion notification, before its acknowledgement. There is at most one in
// 50 µs.
func TestMarkedPacketsAreReported(t *testing.T) {
	s := newMarked(t, RC)
	post := func() {
		if err := s.qp.RQ.Post(1, s.sges(0, 1000)); err != nil {
			t.Fatal(err)
		}
	}
	send := func(at uint32, tclass uint8) {
		post()
		s.arrives(wire.Fields{Opcode: wire.RC | wire.SendOnly, AckReq: true, PSN: at, Payload: make([]byte, 8)}, tclass)
	}
	for _, tclass := range []uint8{0, 1, 2, 0xFC} { // not marked
		send(firstPSN+s.qp.resp.msn, tclass)
		s.sends("RC ACKNOWLEDGE " + fmt.Sprint(firstPSN+s.qp.resp.msn-1))
	}
	send(firstPSN+4, 3)
	pkts := s.out()
	if len(pkts) != 2 || pkts[0].Opcode() != wire.CNP || pkts[1].Opcode() != wire.RC|wire.Ack {
		t.Fatalf("sent %v, want a CNP and an acknowledgement", pkts)
	}
	want := wire.Fields{Opcode: wire.CNP, BECN: true, MigReq: true, PKey: 0xFFFF, DestQPN: s.qp.attr.DestQPN}
	if got := string(pkts[0]); got != string(want.Build()) {
		t.Errorf("CNP %x, want %x", got, want.Build())
	}
	s.now += cnpInterval - 1
	send(firstPSN+5, 0xFF)
	s.sends("RC ACKNOWLEDGE " + fmt.Sprint(firstPSN+5))
	s.now++
	send(firstPSN+6, 0xFF)
	if pkts := s.out(); len(pkts) != 2 {
		t.Errorf("%d packets after the interval, want a CNP and an acknowledgement", len(pkts))
	}
	if c := s.qp.Counters; c.MarkedPackets != 3 || c.CNPSent != 2 {
		t.Errorf("%d packets marked, %d notifications; want 3 and 2", c.MarkedPackets, c.CNPSent)
	}
}

// A notification that does not fit into the batch is sent first in the next one, and nothing is sent before it.
func TestNotificationWaitsForRoomInTheBatch(t *testing.T) {
	s := newMarked(t, RC)
	s.qp.resp.cnpDue = true
	s.qp.resp.ack(4999)
	s.send(8)
	tx := link.NewTxBatch(1, 20) // room for an acknowledgement, but not for a notification
	if !s.qp.Transmit(s.now, tx, 64) || !tx.Empty() || !s.qp.resp.cnpDue {
		t.Errorf("sent %d packets, due %v", tx.Count(), s.qp.resp.cnpDue)
	}
	s.sends("CNP 0", "RC ACKNOWLEDGE 4999", "RC SEND ONLY 1000 A +8")
}

// The turn ends at its budget, of which notification and acknowledgement use up one each, and packets that other QPs
// have put into the batch none.
func TestNotificationCountsInTheTurn(t *testing.T) {
	for budget := 1; budget <= 4; budget++ {
		s := newMarked(t, RC)
		const others = 3
		for range others {
			s.tx.Alloc(s.qp.path, 5, 100)
		}
		s.qp.resp.cnpDue = true
		s.qp.resp.ack(4999)
		for range 5 {
			s.send(8)
		}
		if more := s.qp.Transmit(s.now, s.tx, budget); !more || s.tx.Count() != budget+others {
			t.Errorf("budget %d: %d packets, more %v", budget, s.tx.Count()-others, more)
		}
	}
}

// A congestion notification reduces the window by a quarter, at most once in 50 µs, to 8 packets at least.
func TestNotificationsReduceTheWindow(t *testing.T) {
	s := newMarked(t, RC)
	w := &s.qp.req.win
	s.qp.SetWindow(64*(1024+packetCost), nil)
	full, floor := w.size, s.qp.req.windowFloor()
	cnp := func() { s.arrives(wire.Fields{Opcode: wire.CNP, BECN: true, MigReq: true}, 0) }
	cnp()
	if w.size != full-full/4 {
		t.Fatalf("window %d of %d", w.size, full)
	}
	cnp()
	if w.size != full-full/4 {
		t.Error("two notifications at once count twice")
	}
	for range 20 {
		s.now += cnpInterval
		cnp()
	}
	if w.size != floor {
		t.Errorf("window %d, want the minimum %d", w.size, floor)
	}
	if c := s.qp.Counters; c.CNPHandled != 22 || c.CNPIgnored != 0 {
		t.Errorf("%d handled, %d ignored", c.CNPHandled, c.CNPIgnored)
	}
	s.sends()
}

// Marked READ responses reduce the window of the requester, which asks for less then.
func TestMarkedResponsesReduceTheWindow(t *testing.T) {
	s := newMarked(t, RC)
	w := &s.qp.req.win
	full := w.size
	s.read(3000)
	s.out()
	s.arrives(wire.Fields{Opcode: wire.RC | wire.ReadRespFirst, PSN: firstPSN, Syndrome: wire.SynAck,
		Payload: make([]byte, 1024)}, 3)
	if want := full - full/4 + (1024+packetCost)/calmShare; w.size != want {
		t.Errorf("window %d of %d, want %d", w.size, full, want)
	}
	if pkts := s.out(); len(pkts) != 1 || pkts[0].Opcode() != wire.CNP {
		t.Errorf("sent %v, want a CNP", pkts)
	}
}

// QPs without a window, and those of a state without a peer, ignore notifications.
func TestNotificationsThatAreIgnored(t *testing.T) {
	s := newMarked(t, UC)
	s.arrives(wire.Fields{Opcode: wire.CNP, BECN: true}, 0)
	if c := s.qp.Counters; c.CNPIgnored != 1 || c.BadOpcode != 0 {
		t.Errorf("UC: %+v", c)
	}
	s = newMarked(t, UD)
	s.arrives(wire.Fields{Opcode: wire.CNP, BECN: true}, 0)
	if c := s.qp.Counters; c.CNPHandled != 0 || c.BadOpcode != 1 {
		t.Errorf("UD: %+v", c)
	}
	s = newMarked(t, RC)
	full := s.qp.req.win.size
	f := wire.Fields{Opcode: wire.CNP, BECN: true, PKey: 0xFFFF, DestQPN: s.qp.Num}
	s.qp.OnPacket(s.now, &link.RxPacket{Data: f.Build(), Src: srcAddr, Dst: srcAddr})
	if c := s.qp.Counters; c.BadSource != 1 || s.qp.req.win.size != full {
		t.Errorf("a notification of a stranger: window %d of %d, %+v", s.qp.req.win.size, full, c)
	}
}

// A stranger who knows both addresses and the QPN sends a notification every 10 µs. The window stays at its minimum and
// the budget of the peer at its own: the QP sends on, without a packet sent twice, and is as fast as before afterwards.
func TestForgedNotificationsDoNotStopAQP(t *testing.T) {
	s := newStream(t, 1, nil)
	s.run(20 * msec)
	before := s.run(20 * msec)
	e := s.ends[0]
	during, total := 0.0, 0
	for range 2000 {
		s.ends[0].now = s.now
		e.arrives(wire.Fields{Opcode: wire.CNP, BECN: true, MigReq: true}, 0)
		if size, least := e.qp.req.win.size, e.qp.req.windowFloor(); size < least {
			t.Fatalf("window %d, want at least %d", size, least)
		}
		during, total = during+s.run(10*usec), total+1
	}
	during /= float64(total)
	s.run(20 * msec)
	after := s.run(20 * msec)
	c := e.qp.Counters
	t.Logf("%.2f GB/s before, %.2f during the flood, %.2f after it; %d notifications", before, during, after, c.CNPHandled)
	// 8 packets of 4 KiB in each round trip of 32 µs are 1 GB/s.
	if during < 0.5 || after < 0.9*before || c.CNPHandled != 2000 {
		t.Error("want 0.5 GB/s during the flood, and nine tenths of the speed afterwards")
	}
}

// A bottleneck is a switch with a slow port towards the receiver.
type bottleneck struct {
	cost    int64 // time of a packet, ns
	free    int64 // when all packets in the queue have left
	mark    int64 // length of the queue from which packets are marked
	most    int64 // its maximum length
	marked  int
	lost    int
	longest int64
}

// pass delays a packet, marks it, or drops it and returns false.
func (b *bottleneck) pass(p *streamPacket) bool {
	b.free = max(b.free, p.at)
	length := (b.free - p.at) / b.cost
	if length >= b.most {
		b.lost++
		return false
	}
	b.longest = max(b.longest, length)
	if length >= b.mark && p.tclass&wire.ECNMask == wire.ECNCapable {
		b.marked++
		p.tclass |= wire.ECNMarked
	}
	b.free += b.cost
	p.at = b.free
	return true
}

// Behind a slow switch that marks packets the queue stays short and nothing is lost, at nearly full speed. Without
// marks the window fills the queue until packets are lost.
func TestCongestedSwitch(t *testing.T) {
	for _, capable := range []bool{true, false} {
		s := newStream(t, 1, func(_ *Config, a *Attr) {
			if capable {
				a.Path.TClass = wire.ECNCapable
			}
		})
		s.hop = &bottleneck{cost: 4096, mark: 20, most: 200}
		s.run(5 * msec) // until the first notifications
		s.hop.longest, s.hop.lost = 0, 0
		rate := s.run(100 * msec)
		t.Logf("ECN capable %v: %.3f GB/s of 1, queue up to %d packets, %d marked, %d lost",
			capable, rate, s.hop.longest, s.hop.marked, s.hop.lost)
		switch {
		case capable && (rate < 0.9 || s.hop.lost > 0 || s.hop.longest > 100):
			t.Error("want 0.9 GB/s, no loss, and a queue of at most 100 packets")
		case !capable && (s.hop.marked > 0 || s.hop.lost == 0):
			t.Error("want losses and no marks")
		}
	}
}

// A QP in ERR sends no congestion notification (V-QPS-18).
func TestNoNotificationInErr(t *testing.T) {
	s := newMarked(t, RC)
	s.arrives(wire.Fields{Opcode: wire.RC | wire.SendMiddle, PSN: firstPSN + 1}, wire.ECNMarked)
	s.modify(Err, Attr{}, 0)
	s.sends()
}
