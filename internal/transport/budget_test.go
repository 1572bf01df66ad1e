package transport

import "testing"

// stepAck acknowledges the packets that s has sent, d after now, and continues sending. It returns the packets sent.
func (s *sender) stepAck(d int64) int {
	at := s.qp.req.nxt - 1
	s.now += d
	s.ack(at)
	return len(s.out())
}

// sendMuch posts 32 MiB.
func (s *sender) sendMuch() {
	for range 64 {
		s.send(1 << 19)
	}
}

// A budget starts small, doubles per round trip while acknowledgements are fast, and stops at its limit.
func TestBudgetStartsSmallAndGrows(t *testing.T) {
	b := &Budget{Limit: 8 << 20}
	s := newSender(t, RC, nil)
	s.qp.SetWindow(8<<20, b)
	s.now = msec
	s.sendMuch()
	s.out()
	if b.flight > firstBudget || b.flight < firstBudget-2*(1024+packetCost) {
		t.Fatalf("%d bytes in flight at first, want about %d", b.flight, firstBudget)
	}
	for want := 2 * firstBudget; want < b.Limit; want *= 2 {
		s.stepAck(msec)
		if b.size < want*9/10 || b.size > want {
			t.Fatalf("budget %d, want about %d", b.size, want)
		}
	}
	s.stepAck(msec)
	s.stepAck(msec)
	if b.size < b.Limit || b.size > b.Limit+b.pipe {
		t.Errorf("budget %d, of which %d are on the way; want the limit %d", b.size, b.pipe, b.Limit)
	}
}

// Acknowledgements that take an eighth of the ACK timeout shrink the budget, down to its minimum.
func TestBudgetShrinksForASlowPeer(t *testing.T) {
	b := &Budget{Limit: 8 << 20}
	s := newSender(t, RC, nil) // its ACK timeout is 67 ms
	s.qp.SetWindow(8<<20, b)
	s.now = msec
	s.sendMuch()
	s.out()
	before := firstBudget
	for range 4 {
		s.stepAck(9 * msec)
		// Acknowledged bytes added at most their size before the reduction by a quarter.
		if b.size > 2*before*3/4 || !b.full {
			t.Fatalf("budget %d after a late acknowledgement at %d", b.size, before)
		}
		before = b.size
	}
	for range 30 {
		s.stepAck(20 * msec)
	}
	if b.size > 2*leastBudget || b.size < leastBudget {
		t.Errorf("budget %d of a peer that is always slow, want about %d", b.size, leastBudget)
	}
	for range 60 {
		s.stepAck(msec)
	}
	if b.size < firstBudget {
		t.Errorf("budget %d: it does not come back when the peer is quick again", b.size)
	}
}

// Many QPs whose ACK timers expire together halve the budget once, not once each.
func TestBudgetHalvesOnceForASilence(t *testing.T) {
	b := &Budget{Limit: 8 << 20}
	var qps []*sender
	for range 4 {
		s := newSender(t, RC, nil)
		s.qp.SetWindow(8<<20, b)
		s.now = msec
		s.send(1 << 19)
		s.out()
		qps = append(qps, s)
	}
	silence := func() {
		for _, s := range qps {
			s.after(s.qp.Deadline() - s.now)
		}
		for _, s := range qps {
			s.out()
		}
	}
	if silence(); b.size != firstBudget/2 { // a new ACK timeout
		t.Errorf("budget %d after one silence, want %d", b.size, firstBudget/2)
	}
	if silence(); b.size != firstBudget/4 { // it goes on: that is news
		t.Errorf("budget %d after a second silence, want %d", b.size, firstBudget/4)
	}
}

// A packet that was sent twice is not timed: it is unknown which transmission was acknowledged.
func TestBudgetDoesNotTimeRetries(t *testing.T) {
	b := &Budget{Limit: 8 << 20}
	s := newSender(t, RC, nil)
	s.qp.SetWindow(8<<20, b)
	s.now = msec
	s.send(16 << 10)
	s.out()
	s.nak(firstPSN, 0x60) // rewinds
	s.out()
	s.now += 30 * msec
	s.ack(s.qp.req.nxt - 1)
	if b.size < firstBudget || b.full {
		t.Errorf("budget %d: a retried packet counted as late", b.size)
	}
}
