package transport

import "testing"

// One request of a READ asks for a share of the window: a fourth at most, half or all of it if fewer READs may be
// outstanding, at least one packet, and no more than the READ has.
func TestPacketsOfAReadRequest(t *testing.T) {
	const packet = 1024 + packetCost
	for _, c := range []struct {
		depth, window, n int
		want             uint32
	}{
		{1, 64 * packet, memSize, 64}, {2, 64 * packet, memSize, 32}, {3, 66 * packet, memSize, 22},
		{4, 64 * packet, memSize, 16}, {8, 64 * packet, memSize, 16}, {1, 64 * packet, 10240, 10}, {1, packet, memSize, 1},
		{4, packet, memSize, 1}, {1, 64*packet - 1, memSize, 63},
	} {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.MaxRdAtomic = c.depth })
		s.qp.SetWindow(c.window, nil)
		s.post(OpRead, s.sges(0, c.n), nil)
		w := s.qp.SQ.At(0)
		s.qp.req.measure(w)
		if w.cell != c.want || w.count != uint32((c.n+1023)/1024) {
			t.Errorf("%+v: %d packets of %d", c, w.cell, w.count)
		}
	}
}

// A QP in ERR or RESET remembers nothing of the packets that it has sent.
func TestHaltForgetsWhatWasSent(t *testing.T) {
	for _, st := range []State{Err, Reset} {
		s := measured(t)
		for range 3 {
			s.send(1)
			s.out()
			s.after(s.qp.Deadline() - s.now) // an early retransmit
			s.out()
		}
		r := &s.qp.req
		r.reads, r.retries, r.rnrTries, r.rnrUntil, r.rewoundByNAK, r.rtt.lossy, r.rtt.sent = 1, 2, 3, 4, true, true, 5
		s.modify(st, Attr{}, 0)
		if r.reads != 0 || r.retries != 0 || r.rnrTries != 0 || r.rnrUntil != 0 || r.rewoundByNAK || r.rewound ||
			r.rtt.sent != 0 || r.rtt.early != 0 || r.rtt.doubled != 0 || r.rtt.lossy || r.win.flight != 0 || r.win.pipe != 0 ||
			r.nxt != r.max || r.una != r.max || r.cur != r.head || r.begun != r.head || r.bad != nil {
			t.Errorf("state %d: %+v", st, *r)
		}
		s.checkIdle()
	}
}

// A QP that is connected again begins with its whole window.
func TestNewConnectionHasTheWholeWindow(t *testing.T) {
	s := newSender(t, RC, nil)
	w := &s.qp.req.win
	s.send(1)
	s.out()
	if s.timeout(); w.size == w.limit {
		t.Fatalf("window %d after a time-out", w.size)
	}
	s.modify(Reset, Attr{}, 0)
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, rtsAttr(), everyMask)
	}
	if w.size != DefaultWindow {
		t.Errorf("window %d of %d", w.size, DefaultWindow)
	}
}
