package transport

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

const usec = msec / 1000

// measured returns a QP that has measured a round-trip time of 100 us.
func measured(t *testing.T) *sender {
	t.Helper()
	s := newSender(t, RC, nil)
	s.now = msec
	for i := range uint32(10) {
		s.send(1)
		s.out()
		s.now += 100 * usec
		s.ack(firstPSN + i)
	}
	return s
}

// The wait is twice the smoothed time and four times the mean deviation; the first sample counts as deviating by half.
// Each sample changes the time by 1/8 and the deviation by 1/4 of its difference.
func TestWaitForAnAnswer(t *testing.T) {
	s := newSender(t, RC, nil)
	h := &s.qp.req.rtt
	for _, c := range []struct{ took, smoothed, deviation, wait int64 }{
		{8000 * usec, 8000 * usec, 4000 * usec, 32000 * usec},
		{8000 * usec, 8000 * usec, 3000 * usec, 28000 * usec},
		{16000 * usec, 9000 * usec, 4250 * usec, 35000 * usec},
		{1000 * usec, 8000 * usec, 5187500, 36750 * usec},
	} {
		h.doubled = 3
		h.measured(c.took)
		if h.smoothed != c.smoothed || h.deviation != c.deviation || int64(s.qp.req.overdue()) != c.wait || h.doubled != 0 {
			t.Errorf("after %d: %+v, wait %v, want %+v", c.took, *h, s.qp.req.overdue(), c)
		}
	}
}

// A loss at the end of the data is retransmitted long before the ACK timeout, and does not count as a retry.
func TestEarlyRetransmit(t *testing.T) {
	s := measured(t)
	s.send(1)
	s.out()
	begin := s.now
	// each wait doubles, up to the ACK timeout of 67 ms
	for i, want := range []int64{500, 1500, 3500, 7500, 15500, 31500, 63500} {
		if d := s.qp.Deadline() - begin; d != want*usec {
			t.Fatalf("try %d: the QP goes back after %d us, want %d", i, d/usec, want)
		}
		s.after(s.qp.Deadline() - s.now)
		s.sends("RC SEND ONLY 1010 A +1")
	}
	if r := &s.qp.req; r.retries != 0 || s.qp.Counters.LocalAckTimeoutErr != 0 {
		t.Errorf("%d retries, %d timeouts", r.retries, s.qp.Counters.LocalAckTimeoutErr)
	}
	s.ack(1010)
	s.checkIdle()
	s.send(1)
	s.out()
	s.now += 100 * usec
	s.ack(1011)
	if s.qp.req.rtt.doubled != 0 {
		t.Error("an answer to a packet that was sent once does not begin the count anew")
	}
}

// A packet that waited for room in the link gets the whole ACK timeout, also if it was to be retransmitted early.
func TestEarlyRetransmitThatWaitsForRoom(t *testing.T) {
	s := measured(t)
	s.qp.attr.RetryCnt = 0
	s.send(1)
	s.out()
	s.after(s.qp.Deadline() - s.now)
	s.now += 1000 * msec
	s.sends("RC SEND ONLY 1010 A +1")
	s.after(int64(AckTimeout(14)) / 4)
	s.is(RTS)
}

// RESET forgets the times of the old peer: the next one may be further away, and its first answers must not be taken
// for lost ones.
func TestResetForgetsTheRoundTripTime(t *testing.T) {
	s := measured(t)
	a := rtsAttr()
	s.modify(Reset, Attr{}, 0)
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, a, everyMask)
	}
	s.send(1)
	s.out()
	if got, want := s.qp.Deadline()-s.now, int64(AckTimeout(a.Timeout)); got != want {
		t.Errorf("the first message is sent again after %d us, want %d", got/usec, want/usec)
	}
	if least := s.qp.req.win.least; least != 0 {
		t.Errorf("the shortest round-trip time is %d ns", least)
	}
}

// A network that loses many packets does not make the waits longer and longer: a wait for a lost packet is no sample of
// the peer's time.
func TestEarlyRetransmitWithManyLosses(t *testing.T) {
	s := measured(t)
	at := uint32(1010)
	for range 100 {
		for lost := range 3 { // every third message is lost once
			s.send(1)
			s.out()
			if lost == 0 {
				s.after(s.qp.Deadline() - s.now)
				s.out()
			}
			s.now += 100 * usec
			s.ack(at)
			s.qp.SQ.Release(s.cqes[len(s.cqes)-1].Slot)
			at++
		}
	}
	s.send(1)
	s.out()
	if d := s.qp.Deadline() - s.now; d > 500*usec {
		t.Errorf("the QP goes back after %d us where answers take 100 us", d/usec)
	}
}

// Where the peer has reported losses, the loss of a NAK or of a retransmission is soon found.
func TestEarlyRetransmitIsSoonerAfterReportedLosses(t *testing.T) {
	s := newSender(t, RC, nil)
	s.now = msec
	for i := range uint32(10) {
		s.send(1)
		s.out()
		s.now += 20 * usec
		s.ack(firstPSN + i)
	}
	s.send(1)
	s.send(1)
	s.out()
	s.nak(1010, wire.SynSeqErr)
	s.out()
	if d := s.qp.Deadline() - s.now; d > 200*usec {
		t.Errorf("the QP goes back after %d us where answers take 20 us", d/usec)
	}
}

// A dead peer is detected after the same time as without early retransmits.
func TestEarlyRetransmitsKeepTheRetryLimit(t *testing.T) {
	fail := func(s *sender) int64 {
		s.send(1)
		s.out()
		begin := s.now
		for s.qp.State() == RTS {
			s.timeout()
			s.out()
		}
		return s.now - begin
	}
	plain := newSender(t, RC, nil)
	plain.now = msec
	quick := measured(t)
	if a, b := fail(plain), fail(quick); a != b {
		t.Errorf("%d us without a measured time, %d us with one", a/usec, b/usec)
	}
	if n := quick.qp.Counters.LocalAckTimeoutErr; n != 8 {
		t.Errorf("%d ACK timeouts, want 8", n)
	}
}

// A slow peer does not cause early retransmits, nor, after a short while, does a peer that has become slow.
func TestEarlyRetransmitAdaptsToThePeer(t *testing.T) {
	s := measured(t)
	at := uint32(1010)
	for i := range 20 {
		before := s.qp.Counters.RetransmitPackets
		s.send(1)
		s.out()
		for d := s.now + 8*msec; s.now < d; { // the response takes 8 ms from now on
			s.after(min(d, s.qp.Deadline()) - s.now)
			s.out()
		}
		s.ack(at)
		at++
		if n := s.qp.Counters.RetransmitPackets - before; n > 0 && i > 10 {
			t.Errorf("message %d was sent again %d times", i, n)
		}
	}
	s = newSender(t, RC, nil)
	s.now = msec
	for i := range uint32(30) {
		s.send(1)
		s.out()
		s.now += 8 * msec
		s.ack(firstPSN + i)
	}
	s.send(1)
	s.out()
	if d := s.qp.Deadline() - s.now; d < 16*msec || d > 20*msec {
		t.Errorf("the QP goes back after %d us where answers take 8 ms", d/usec)
	}
}

// Timeout 0 disables early retransmits.
func TestNoEarlyRetransmitWithoutTimeout(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.Timeout = 0 })
	s.now = msec
	s.send(1)
	s.out()
	s.now += 100 * usec
	s.ack(firstPSN)
	s.send(1)
	s.out()
	if d := s.qp.Deadline(); d != Never {
		t.Errorf("deadline %d", d)
	}
}

// After an early retransmit a NAK sends everything again: it may answer the retransmission.
func TestNakAfterAnEarlyRetransmit(t *testing.T) {
	s := measured(t)
	s.send(1)
	s.send(1)
	s.out()
	s.after(s.qp.Deadline() - s.now)
	both := []string{"RC SEND ONLY 1010 A +1", "RC SEND ONLY 1011 A +1"}
	s.sends(both...)
	s.nak(1010, wire.SynSeqErr)
	s.sends(both...)
	if n := s.qp.req.retries; n != 1 {
		t.Errorf("%d retries, want 1", n)
	}
}

// Reported losses are forgotten when the window is as large as before.
func TestReportedLossesAreForgotten(t *testing.T) {
	s := measured(t)
	at := uint32(1010)
	s.send(1)
	s.send(1)
	s.out()
	s.nak(at, wire.SynSeqErr)
	s.out()
	s.now += 20 * usec
	at += 2
	s.ack(at - 1)
	w := &s.qp.req.win
	if w.size == w.most() {
		t.Fatal("the loss did not reduce the window")
	}
	for rest := 1; rest >= 0; { // the acknowledgement after the one that fills the window
		if w.size == w.most() {
			rest--
		}
		s.send(1 << 16)
		s.out()
		s.now += 20 * usec
		at += 64
		s.ack(at - 1)
		s.qp.SQ.Release(s.cqes[len(s.cqes)-1].Slot)
	}
	s.send(1)
	s.out()
	if d := s.qp.Deadline() - s.now; d < int64(minAckTimeout) {
		t.Errorf("the QP goes back after %d us, want at least %v", d/usec, minAckTimeout)
	}
}
