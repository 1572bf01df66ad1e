package transport

import (
	"math"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// Bytes in flight never exceed the window, for any message size.
func TestWindowBoundsBytesInFlight(t *testing.T) {
	for _, size := range []int{0, 1, 100, 1023, 1025, 5000} {
		s := newSender(t, RC, nil)
		s.qp.SetWindow(10*(1024+packetCost), nil)
		for range 60 {
			s.send(size)
		}
		flight := 0
		var last uint32
		for _, p := range s.out() {
			flight += len(p.Payload()) + packetCost
			last = p.BTH().PSN()
		}
		if limit := 10 * (1024 + packetCost); flight > limit || flight < limit-1024-packetCost {
			t.Errorf("messages of %d bytes: %d in flight, limit %d", size, flight, limit)
		}
		s.ack(last)
		if len(s.out()) == 0 {
			t.Error("an acknowledgement does not open the window")
		}
	}
}

// A window smaller than one packet still permits one packet.
func TestTinyWindow(t *testing.T) {
	s := newSender(t, RC, nil)
	s.qp.SetWindow(1, nil)
	s.send(2000)
	s.sends("RC SEND FIRST 1000 A +1024")
	s.sends()
	s.ack(1000)
	s.sends("RC SEND LAST 1001 A +976")
}

func TestWindowShrinksWithLossAndGrowsBack(t *testing.T) {
	s := newSender(t, RC, nil)
	w := &s.qp.req.win
	s.qp.SetWindow(64*(1024+packetCost), nil)
	full, floor := w.size, s.qp.req.windowFloor()
	s.send(1 << 19)
	s.out()
	s.nak(1010, wire.SynSeqErr)
	if w.size != full/2 || w.flight != 0 {
		t.Fatalf("after a lost packet: window %d of %d, %d in flight", w.size, full, w.flight)
	}
	if n := len(s.out()); n != 32 {
		t.Errorf("%d packets went out again", n)
	}
	s.timeout()
	if w.size != floor {
		t.Fatalf("after a timeout: window %d, want %d", w.size, floor)
	}
	rounds, at := 0, uint32(1010)
	for ; w.size < full; rounds++ {
		at += uint32(len(s.out()))
		s.ack(at - 1)
	}
	if rounds < 5 || rounds > 20 {
		t.Errorf("the window is back after %d round trips", rounds)
	}
	for range 20 {
		s.nak(at, wire.SynSeqErr)
		s.out()
		at++
	}
	if w.size < floor {
		t.Errorf("window %d is below the minimum", w.size)
	}
}

// QPs that share a budget stay within it, except that each may send one packet; none waits for the others.
func TestBudgetIsShared(t *testing.T) {
	const full = 1024 + packetCost
	b := &Budget{Limit: 8 * full}
	var qps []*sender
	for range 4 {
		s := newSender(t, RC, nil)
		s.qp.SetWindow(0, b) // moves the bytes in flight to the new budget
		s.send(20 << 10)
		qps = append(qps, s)
	}
	next := make([]uint32, 4)
	for i, s := range qps {
		next[i] = firstPSN + uint32(len(s.out()))
	}
	if b.flight > (8+3)*full {
		t.Errorf("%d bytes in flight, limit %d", b.flight, b.Limit)
	}
	for round := 0; ; round++ {
		left := 0
		for i, s := range qps {
			if len(s.cqes) > 0 {
				continue
			}
			left++
			s.ack(next[i] - 1)
			n := len(s.out())
			if n == 0 && len(s.cqes) == 0 {
				t.Fatalf("QP %d is stuck in round %d", i, round)
			}
			next[i] += uint32(n)
		}
		if left == 0 {
			break
		}
	}
	for _, s := range qps {
		s.checkIdle()
	}
	if b.flight != 0 {
		t.Errorf("%d bytes are left in the budget", b.flight)
	}
}

// Another QP may use up the budget after a packet without an ack request was sent. The next packet is sent in any
// case and requests an acknowledgement: otherwise no ACK would ever arrive.
func TestBudgetTakenInMidMessage(t *testing.T) {
	b := &Budget{Limit: 100 * (1024 + packetCost)}
	s := newSender(t, RC, nil)
	s.qp.SetWindow(0, b)
	s.send(20 << 10)
	if s.qp.Transmit(0, s.tx, 3) != true || wire.BTH(s.tx.Bytes(2)).AckReq() {
		t.Fatal("three packets should have left in silence")
	}
	s.tx.Reset()
	b.flight = b.Limit
	s.sends("RC SEND MIDDLE 1003 A +1024")
	s.ack(1003)
	s.sends("RC SEND MIDDLE 1004 +1024", "RC SEND MIDDLE 1005 +1024", "RC SEND MIDDLE 1006 A +1024")
}

// ERR and RESET release the QP's share of the budget.
func TestBudgetIsReturned(t *testing.T) {
	for _, st := range []State{Err, Reset} {
		b := &Budget{Limit: 1 << 20}
		s := newSender(t, RC, nil)
		s.send(1)
		s.out()
		s.qp.SetWindow(0, b) // moves what is in flight to the new budget
		if b.flight != 1+packetCost {
			t.Errorf("budget %d", b.flight)
		}
		s.modify(st, Attr{}, 0)
		if b.flight != 0 {
			t.Errorf("state %d: %d bytes are left in the budget", st, b.flight)
		}
	}
}

// PSNs in flight stay far below half of the range, whatever the window.
func TestPSNsInFlightAreBounded(t *testing.T) {
	s := newSender(t, RC, func(c *Config, a *Attr) {
		c.SQ = NewSendQueue(4, 1, 0)
		a.MTU, a.MaxRdAtomic = 256, 16
	})
	s.qp.SetWindow(math.MaxInt, nil)
	for range 2 {
		s.post(OpRead, s.sges(0, 1), func(w *SendWQE) { w.Length, w.SGEs[0].Length = maxMessage, 0 })
	}
	s.out()
	r := &s.qp.req
	if n := (r.nxt - r.una) & 0xFFFFFF; n > maxSpan || n < maxSpan/2 {
		t.Errorf("%d PSNs in flight", n)
	}
}

// A receiver with a buffer smaller than the window drops the end of each burst. The transfer neither stops until a
// timer expires nor sends much twice.
func TestSmallReceiveBufferDoesNotCollapseThroughput(t *testing.T) {
	for _, room := range []int{12, 30, 64, 120} { // packets
		s := newSender(t, RC, nil)
		for range 8 {
			s.send(1 << 19)
		}
		expect, sent, rounds, timeouts := uint32(firstPSN), 0, 0, 0
		for len(s.cqes) < 8 {
			pkts := s.out()
			sent += len(pkts)
			rounds++
			ack, nak := false, false
			for _, p := range pkts[:min(room, len(pkts))] {
				switch at := p.BTH().PSN(); {
				case at == expect && !nak:
					expect++
					ack = ack || p.BTH().AckReq()
				case at > expect:
					nak = true
				default:
					ack = true
				}
			}
			switch {
			case nak:
				s.nak(expect, wire.SynSeqErr)
			case ack:
				s.ack(expect - 1)
			case len(pkts) > 0 || s.qp.Deadline() != Never:
				timeouts++
				s.timeout()
			}
		}
		total := int(expect - firstPSN)
		if sent > 2*total || rounds > 4*total/room+20 || timeouts > 2 {
			t.Errorf("room for %d packets: %d packets for %d, %d round trips, %d timeouts", room, sent, total, rounds, timeouts)
		}
	}
}

// After an ACK timeout nothing is known to be held by the network.
func TestTimeoutEmptiesThePipe(t *testing.T) {
	s := newSender(t, RC, nil)
	w := &s.qp.req.win
	s.send(1 << 16)
	s.out()
	w.setPipe(1 << 20)
	s.timeout()
	if w.pipe != 0 || w.size != s.qp.req.windowFloor() {
		t.Errorf("%d bytes in the network, window %d", w.pipe, w.size)
	}
}

// Data that goes by reference takes no room of the receiver, so more of it may be in flight. That ends with the
// connection.
func TestWindowByReference(t *testing.T) {
	s := newSender(t, RC, nil)
	l := &reader{share: link.NewShare(nil, memSize, 0)}
	s.mem.Share = l.share
	s.tx.Direct, s.tx.ByReference = l, l
	const limit, size, many = 2 * link.MinRef, 2 * link.MinRef, 20
	s.qp.SetWindow(limit, nil)
	for range many {
		s.post(OpSend, s.sges(0, size), nil)
	}
	for s.qp.Pending() {
		s.qp.Transmit(s.now, s.tx, 64)
		s.tx.Reset()
	}
	if n := refs(l.sent); n < (many-1)*size {
		t.Errorf("%d bytes by reference in flight, posted %d", n, many*size)
	}
	if w := &s.qp.req.win; w.most() != wideWindow || w.size > wideWindow {
		t.Errorf("the limit is %d and the size %d, want %d", w.most(), w.size, wideWindow)
	}
	for _, st := range []State{Reset, Init, RTR, RTS} {
		s.modify(st, rtsAttr(), everyMask)
	}
	s.tx.Direct, s.tx.ByReference = nil, nil
	for range 60 {
		s.post(OpSend, s.sges(0, size), nil)
	}
	flight := 0
	for _, p := range s.out() {
		flight += len(p.Payload()) + packetCost
	}
	if flight == 0 || flight > limit {
		t.Errorf("%d bytes of the next connection in flight, want at most %d", flight, limit)
	}
}

// A limit that SetWindow has set stays in the next connection, also if it is that of data by reference or more.
func TestLimitOfTheNextConnection(t *testing.T) {
	for _, limit := range []int{1 << 20, wideWindow, 2 * wideWindow} {
		s := newSender(t, RC, nil)
		w := &s.qp.req.win
		s.qp.SetWindow(limit, nil)
		w.widen()
		if want := max(limit, wideWindow); w.most() != want || w.size != want {
			t.Errorf("limit %d: %d at most, size %d; want %d", limit, w.most(), w.size, want)
		}
		for _, st := range []State{Reset, Init, RTR, RTS} {
			s.modify(st, rtsAttr(), everyMask)
		}
		if w.most() != limit || w.size != limit {
			t.Errorf("limit %d: %d at most, size %d in the next connection", limit, w.most(), w.size)
		}
	}
}
