package transport

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/observe"
)

// A sequence error NAK acknowledges everything before it; everything from it on is sent again, once.
func TestSequenceNakRewinds(t *testing.T) {
	s := newSender(t, RC, nil)
	for range 5 {
		s.send(1)
	}
	s.out()
	s.nak(1002, wire.SynSeqErr)
	s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 0")
	s.nak(1002, wire.SynSeqErr) // a duplicate, before the retransmission
	s.sends("RC SEND ONLY 1002 A +1", "RC SEND ONLY 1003 A +1", "RC SEND ONLY 1004 A +1")
	s.nak(1002, wire.SynSeqErr) // and one after
	s.sends()
	if c := s.qp.Counters; c.PacketSeqErr != 3 || c.RetransmitPackets != 3 || s.qp.req.retries != 1 {
		t.Errorf("%+v, %d retries", c, s.qp.req.retries)
	}
	// The retransmission is lost. After the timeout a NAK counts again.
	s.timeout()
	s.nak(1002, wire.SynSeqErr) // of before, when nothing was sent again yet
	if s.qp.req.retries != 2 {
		t.Errorf("%d retries", s.qp.req.retries)
	}
	s.sends("RC SEND ONLY 1002 A +1", "RC SEND ONLY 1003 A +1", "RC SEND ONLY 1004 A +1")
	s.nak(1002, wire.SynSeqErr)
	s.sends("RC SEND ONLY 1002 A +1", "RC SEND ONLY 1003 A +1", "RC SEND ONLY 1004 A +1")
	s.ack(1004)
	s.checkIdle()
}

// Packets acknowledged after a retry began are not sent again.
func TestLateAckStopsARetry(t *testing.T) {
	s := newSender(t, RC, nil)
	for range 4 {
		s.send(2000)
	}
	s.out()
	s.timeout()
	s.ack(1004) // in the middle of the third message
	s.sends("RC SEND LAST 1005 A +976", "RC SEND FIRST 1006 +1024", "RC SEND LAST 1007 A +976")
	s.ack(1007)
	s.checkIdle()
}

// A response after a missing one proves the loss: implied_nak_seq_err.
func TestImpliedNak(t *testing.T) {
	ask := "RC RDMA READ REQUEST 1001 A reth a000 b0b 3000"
	rest := []string{ask, "RC FETCH ADD 1004 A atomic a000 b0b 3 0", "RC SEND ONLY 1005 A +1"}
	for _, c := range []struct {
		name string
		do   func(s *sender)
		want []string
	}{
		{"ACK behind a READ", func(s *sender) { s.ack(1005) }, rest},
		{"ACK for the READ itself", func(s *sender) { s.ack(1003) }, rest}, // rxe answers a copy of the SEND before it so
		{"NAK behind a READ", func(s *sender) { s.nak(1005, wire.SynSeqErr) }, rest},
		{"fatal NAK behind a READ", func(s *sender) { s.nak(1005, wire.SynAccess) }, rest},
		{"RNR NAK behind a READ", func(s *sender) { s.nak(1005, wire.SynRNR|1) }, rest},
		{"atomic behind a READ", func(s *sender) { s.atomicAck(1004, 9) }, rest},
		{"gap in the answer", func(s *sender) {
			s.data(wire.ReadRespFirst, 1001, 1024)
			s.data(wire.ReadRespLast, 1003, 952)
		}, append([]string{"RC RDMA READ REQUEST 1002 A reth a400 b0b 1976"}, rest[1:]...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSender(t, RC, nil)
			s.send(1)
			s.post(OpRead, s.sges(0, 3000), nil)
			s.post(OpFetchAdd, s.sges(4000, 8), nil)
			s.send(1)
			s.out()
			c.do(s) // every outstanding response proves the same loss
			s.completes("wr 1 status 0 op 0")
			s.sends(c.want...)
			c.do(s) // everything that was under way proves the same
			s.sends()
			if n := s.qp.Counters.ImpliedNakSeqErr; n != 1 {
				t.Errorf("implied_nak_seq_err = %d", n)
			}
			if s.qp.req.una == 1001 {
				s.data(wire.ReadRespFirst, 1001, 1024)
				s.data(wire.ReadRespMiddle, 1002, 1024)
			} else {
				s.data(wire.ReadRespFirst, 1002, 1024) // of the second response: a duplicate
			}
			s.data(wire.ReadRespLast, 1003, 952)
			s.atomicAck(1004, 5)
			s.ack(1005)
			s.completes("wr 2 status 0 op 2 len 3000", "wr 3 status 0 op 4 len 8", "wr 4 status 0 op 0")
			s.checkIdle()
			for i, n := range []int{1024, 1024, 952} {
				if string(s.mem.Buf[1024*i:1024*i+n]) != string(pattern(uint32(1001+i), n)) {
					t.Errorf("packet %d of the READ is not where it belongs", i)
				}
			}
		})
	}
}

// During a retry the response to the first transmission may still arrive and is accepted.
func TestLateReadResponsesAreAccepted(t *testing.T) {
	s := newSender(t, RC, nil)
	s.read(5000)
	s.data(wire.ReadRespFirst, 1000, 1024) // a duplicate is no progress
	s.timeout()
	s.data(wire.ReadRespMiddle, 1001, 1024) // before the request is sent again
	s.sends("RC RDMA READ REQUEST 1002 A reth a800 b0b 2952")
	s.data(wire.ReadRespMiddle, 1002, 1024)
	s.data(wire.ReadRespFirst, 1002, 1024) // of the second answer: a copy
	s.data(wire.ReadRespMiddle, 1003, 1024)
	s.data(wire.ReadRespLast, 1004, 904)
	s.completes("wr 1 status 0 op 2 len 5000")
	s.checkIdle()
}

// A responder finishes the response to the first request before it handles the retry. Those responses cause no
// further retry, and they are not silence: a long READ from rxe once failed by its retry count although rxe responded
// all the time.
func TestFirstResponseContinuesAfterARetry(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(s *sender)
	}{
		{"after a timeout", func(s *sender) { s.timeout() }},
		{"after a lost response", func(s *sender) { s.data(wire.ReadRespMiddle, 1002, 1024) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSender(t, RC, nil)
			s.read(20 * 1024)
			s.data(wire.ReadRespFirst, 1000, 1024)
			c.lose(s)
			s.sends("RC RDMA READ REQUEST 1001 A reth a400 b0b 19456")
			for at := uint32(1003); at < 1019; at++ {
				s.after(60 * msec) // each within the ACK timeout of the one before
				s.data(wire.ReadRespMiddle, at, 1024)
				s.sends()
				if d, want := s.qp.Deadline(), s.now+2*int64(AckTimeout(14)); d != want {
					t.Fatalf("deadline %d after response %d, want %d", d, at, want)
				}
			}
			s.data(wire.ReadRespFirst, 1001, 1024)
			for at := uint32(1002); at < 1019; at++ {
				s.data(wire.ReadRespMiddle, at, 1024)
			}
			s.data(wire.ReadRespLast, 1019, 1024)
			s.completes("wr 1 status 0 op 2 len 20480")
			s.checkIdle()
		})
	}
}

// The last response may arrive after the rewind and before the request is sent again.
func TestLateLastReadResponse(t *testing.T) {
	s := newSender(t, RC, nil)
	s.read(2000)
	s.data(wire.ReadRespFirst, 1000, 1024)
	s.timeout()
	s.data(wire.ReadRespLast, 1001, 976)
	s.completes("wr 1 status 0 op 2 len 2000")
	s.sends()
	s.checkIdle()
}

// V-QPQ-07 and V-KC-02: after an RNR NAK nothing is sent for the requested time; then sending resumes at that packet.
func TestV_KC_02_ReceiverNotReady(t *testing.T) {
	for code := range uint8(32) {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.RNRRetry = 1 })
		for range 3 {
			s.send(1)
		}
		s.out()
		s.now = 3 * msec
		s.nak(1001, wire.SynRNR|code) // a duplicate
		s.completes("wr 1 status 0 op 0")
		s.send(1)
		want := s.now + int64(RNRDelay(code))
		s.sends()
		s.now += 5000
		s.nak(1001, wire.SynRNR|code) // a copy
		s.nak(1001, wire.SynSeqErr)   // rxe sends these for packets after the refused one
		if s.qp.Deadline() != want {
			t.Fatalf("code %d: waits until %d, want %d", code, s.qp.Deadline(), want)
		}
		s.sends()
		s.timeout()
		s.sends("RC SEND ONLY 1001 A +1", "RC SEND ONLY 1002 A +1", "RC SEND ONLY 1003 A +1")
		s.ack(1003)
		s.completes("wr 2 status 0 op 0", "wr 3 status 0 op 0", "wr 4 status 0 op 0")
		s.checkIdle()
		if s.qp.Counters.RNRNakRcvd != 2 {
			t.Errorf("%d RNR NAKs were counted", s.qp.Counters.RNRNakRcvd)
		}
	}
}

// IBTA volume 1, table 45. Bits above the five of the code do not count.
func TestRNRDelays(t *testing.T) {
	us := []int{655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680,
		10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520}
	for code := range 256 {
		if got, want := RNRDelay(uint8(code)), time.Duration(us[code%32])*time.Microsecond; got != want {
			t.Errorf("code %d: %v, want %v", code, got, want)
		}
	}
}

// An RNR NAK may stop a message at its last packet (WRITE with immediate).
func TestRNRWithinAMessage(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpWriteImm, s.sges(0, 2500), nil)
	s.out()
	s.nak(1002, wire.SynRNR|1)
	s.timeout()
	s.sends("RC RDMA WRITE LAST WITH IMMEDIATE 1002 A imm 1020304 +452")
	s.ack(1002)
	s.checkIdle()
}

// retry_cnt counts missing answers, and an RNR NAK is an answer: a peer without a receive, and a lost packet now and
// then meanwhile, do not end the connection.
func TestRNRNakEndsTheCountOfTimeouts(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt, a.RNRRetry = 2, 7 })
	s.send(1)
	s.out()
	again := func() {
		t.Helper()
		s.is(RTS)
		s.timeout()
		s.out()
	}
	for range 20 {
		again()
		again()
		s.nak(firstPSN, wire.SynRNR|1)
		s.nak(firstPSN, wire.SynRNR|1) // a copy
		again()                        // after the pause
	}
	again()
	again()
	again()
	s.is(Err)
	if e := s.cqes[0]; e.Status != RetryExcErr {
		t.Errorf("status %d, want RETRY_EXC_ERR", e.Status)
	}
}

// V-QPQ-06: rnr_retry 7 is unlimited; other values count anew after each acknowledged packet.
func TestV_QPQ_06_RNRRetry(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.out()
	for range 1000 {
		s.nak(1000, wire.SynRNR|1)
		s.timeout()
		s.out()
	}
	s.ack(1000) // of a duplicate that found a receive
	s.completes("wr 1 status 0 op 0")

	s = newSender(t, RC, func(_ *Config, a *Attr) { a.RNRRetry = 1 })
	for range 10 {
		s.send(1)
	}
	s.out()
	for i := range uint32(9) {
		s.nak(firstPSN+i, wire.SynRNR|1)
		s.timeout()
		s.out()
	}
	s.is(RTS)
	s.nak(1008, wire.SynRNR|1)
	s.is(Err)
	if c := s.qp.Counters; c.RNRNakRetryErr != 1 {
		t.Errorf("rnr_nak_retry_err = %d", c.RNRNakRetryErr)
	}
	if e := s.cqes[8]; e.Status != RNRRetryExcErr || e.Cause.Syndrome != wire.SynRNR|1 {
		t.Errorf("status %d, syndrome %#x, want that of the NAK, %#x", e.Status, e.Cause.Syndrome, wire.SynRNR|1)
	}
}

// The ACK timer starts again after each pause, also if an early retransmit preceded it: RNR NAKs take no retries.
func TestRNRPauseAfterAnEarlyRetransmit(t *testing.T) {
	s := measured(t)
	s.send(1)
	s.out()
	s.after(s.qp.Deadline() - s.now)
	s.sends("RC SEND ONLY 1010 A +1")
	for range 20 {
		s.nak(1010, wire.SynRNR|31) // 491 ms, more than the ACK timeout
		s.after(s.qp.Deadline() - s.now)
		s.sends("RC SEND ONLY 1010 A +1")
		s.after(1)
		s.sends()
	}
	if c := s.qp.Counters; c.LocalAckTimeoutErr != 0 || s.qp.req.retries != 0 {
		t.Errorf("%d timeouts, %d retries", c.LocalAckTimeoutErr, s.qp.req.retries)
	}
}

// An acknowledgement ends the pause.
func TestProgressEndsTheRNRPause(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.send(1)
	s.out()
	s.nak(1000, wire.SynRNR)
	s.ack(1000) // of a copy that found a receive
	s.sends("RC SEND ONLY 1001 A +1")
}

// retry_cnt is the number of retries, also if it is 7: rxe treats 7 as unlimited, IBTA does not.
func TestRetryCount(t *testing.T) {
	for cnt := range uint8(8) {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt = cnt })
		s.send(1)
		s.sends("RC SEND ONLY 1000 A +1")
		for range cnt {
			begin := s.now
			s.timeout()
			if d := s.now - begin; d < int64(AckTimeout(14)) || d > 4*int64(AckTimeout(14)) {
				t.Fatalf("sent again after %d ns", d)
			}
			s.sends("RC SEND ONLY 1000 A +1")
		}
		s.timeout()
		s.sends()
		s.is(Err)
		if c := s.qp.Counters; c.LocalAckTimeoutErr != uint64(cnt)+1 || c.RetryExceeded != 1 ||
			c.RetransmitPackets != uint64(cnt) {
			t.Errorf("%+v", c)
		}
	}
}

// Each acknowledged packet resets the count.
func TestProgressResetsRetries(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt = 1 })
	s.send(20000)
	at := uint32(firstPSN)
	for range 10 {
		s.out()
		s.timeout()
		s.out()
		s.ack(at)
		at++
	}
	s.is(RTS)
}

// V-QPQ-06: timeout 0 waits without limit. Other codes are kept within IBTA's bounds, except the first few, which are
// too short for software.
func TestV_QPQ_06_AckTimeout(t *testing.T) {
	for code := range uint8(32) {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.Timeout = code })
		s.now = 77
		s.send(1)
		if s.qp.Deadline() != Never {
			t.Error("waits before anything was sent")
		}
		s.out()
		d, want := s.qp.Deadline(), s.now+int64(4096)<<code
		switch {
		case code == 0 && d != Never:
			t.Errorf("timeout 0 ends at %d", d)
		case code >= 5 && (d < want || d > 77+4*(want-77)), code > 0 && code < 5 && d != s.now+int64(minAckTimeout):
			t.Errorf("code %d: deadline %d, want %d", code, d, want)
		}
	}
}

// Each retry doubles the wait, within the factor of four that IBTA permits; progress resets it.
func TestRetriesBackOff(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt = 7 })
	s.send(1)
	s.send(1)
	s.out()
	for _, factor := range []int64{1, 2, 4, 4, 4} {
		if d, want := s.qp.Deadline(), s.now+factor*int64(AckTimeout(14)); d != want {
			t.Fatalf("deadline %d, want %d", d, want)
		}
		s.timeout()
		s.out()
	}
	s.ack(1000)
	if d, want := s.qp.Deadline(), s.now+int64(AckTimeout(14)); d != want {
		t.Errorf("deadline %d after progress, want %d", d, want)
	}
}

// The timer starts when a packet is sent and restarts with every acknowledged packet, including READ responses.
func TestAckTimerRestarts(t *testing.T) {
	s := newSender(t, RC, nil)
	wait := int64(AckTimeout(14))
	s.read(3000)
	s.after(60 * msec)
	s.send(1)
	s.out()
	if d := s.qp.Deadline(); d != wait {
		t.Errorf("deadline %d after a second request", d)
	}
	s.data(wire.ReadRespFirst, 1000, 1024)
	if d := s.qp.Deadline(); d != 60*msec+wait {
		t.Errorf("deadline %d after a response", d)
	}
	s.after(60 * msec)
	s.data(wire.ReadRespFirst, 1000, 1024) // a copy is no progress
	if d := s.qp.Deadline(); d != 60*msec+wait {
		t.Errorf("deadline %d after a copy", d)
	}
	s.data(wire.ReadRespMiddle, 1001, 1024)
	s.data(wire.ReadRespLast, 1002, 952)
	s.ack(1003)
	s.checkIdle()
	s.after(1000 * msec)
	s.send(1)
	s.out()
	if d := s.qp.Deadline(); d != s.now+wait {
		t.Errorf("deadline %d after a pause", d)
	}
}

// A retry that starts in the middle of a message sends the right data, whatever was sent since. (An inline request of
// one packet's length once left the cursor at that position of the previous request.)
func TestRetryAfterInlineRequest(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.MTU = 256 })
	s.post(OpSend, s.sges(0, 600, 300), nil)
	s.post(OpSend, nil, func(w *SendWQE) {
		w.Flags |= Inline
		w.Inline = w.Inline[:256]
		w.Length = 256
	})
	s.out()
	s.nak(1001, wire.SynSeqErr)
	again := s.out()
	if len(again) != 3 || !bytes.Equal(again[0].Payload(), noise[256:512]) ||
		!bytes.Equal(again[1].Payload(), noise[512:600]) {
		t.Fatalf("%d packets again, or not the same data", len(again))
	}
	s.ack(1003)
	s.checkIdle()
}

// A lost response that is found out before the retransmission of its request has begun costs no other retry.
func TestLostResponseBeforeTheRetransmission(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.send(1)
	s.post(OpFetchAdd, s.sges(0, 8), nil)
	s.send(1)
	s.out()
	s.nak(1000, wire.SynSeqErr)
	s.ack(1001) // nothing was sent again yet, and the next packet is the atomic
	s.ack(1003)
	if r := &s.qp.req; r.una != 1002 || r.retries != 0 || s.qp.Counters.ImpliedNakSeqErr != 0 {
		t.Errorf("PSN %d, %d retries, implied_nak_seq_err %d", r.una, r.retries, s.qp.Counters.ImpliedNakSeqErr)
	}
	s.sends("RC FETCH ADD 1002 A atomic a000 b0b 3 0", "RC SEND ONLY 1003 A +1")
}

// The end of the peer's process matters to a reliable QP that is connected: its requests fail, and if the process died
// the QP fails without them too.
func TestPeerLostInEachState(t *testing.T) {
	for _, typ := range []Type{RC, UC, UD} {
		for _, st := range []State{Reset, Init, RTR, RTS, SQD, Err} {
			for _, died := range []bool{false, true} {
				s := newSender(t, typ, nil)
				s.modify(Reset, Attr{}, 0)
				for _, next := range []State{Init, RTR, RTS, SQD} {
					if next <= st && st != Err {
						s.modify(next, rtsAttr(), everyMask)
					}
				}
				if st == Err {
					s.modify(Err, Attr{}, 0)
				}
				s.qp.PeerLost(s.now, died)
				want := st
				if typ == RC && died && (st == RTR || st == RTS || st == SQD) {
					want = Err
				}
				if got := s.qp.State(); got != want {
					t.Errorf("type %d, state %d, died %v: state %d, want %d", typ, st, died, got, want)
				}
			}
		}
	}
	s := newSender(t, UC, nil)
	s.qp.Path() // connected
	s.qp.PeerLost(s.now, true)
	if s.qp.First() != nil {
		t.Errorf("UC: %+v", s.qp.First())
	}
}

// An observer learns of each retry, with its reason and the addresses.
func TestRetriesAreObserved(t *testing.T) {
	var got []observe.Event
	stop := observe.Handle(func(e observe.Event) { got = append(got, e) })
	s := newSender(t, RC, nil)
	s.send(1)
	s.out()
	s.timeout()
	s.out()
	s.nak(1000, wire.SynRNR|1)
	stop()
	local, peer := netip.AddrPortFrom(srcAddr, 0), netip.AddrPortFrom(dstAddr, 0)
	for i, why := range []string{"no acknowledgement within the ACK timeout", "the peer had no receive posted (RNR NAK)"} {
		if len(got) != 2 {
			t.Fatalf("%+v", got)
		}
		e := got[i]
		if e.Name != observe.Retry || e.QPN != s.qp.Num || e.DestQPN != 0x22 || e.Reason != why || e.Retries != 1 ||
			e.Local != local || e.Peer != peer {
			t.Errorf("%+v", e)
		}
	}
	if local, peer := NewQP(Config{Type: RC}).Ends(); local.IsValid() || peer.IsValid() {
		t.Errorf("a QP in RESET has the ends %v and %v", local, peer)
	}
}

// After an ACK timeout a NAK sends everything again, although one did so before.
func TestNakAfterATimeout(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.out()
	for _, again := range []func(){
		func() { s.nak(1000, wire.SynSeqErr) }, s.timeout, func() { s.nak(1000, wire.SynSeqErr) },
	} {
		again()
		s.sends("RC SEND ONLY 1000 A +1")
	}
}

// A failure by the peer's request has heard of the peer.
func TestFailureOfTheResponderIsHeard(t *testing.T) {
	s := newSender(t, RC, nil)
	s.arrives(wire.Fields{Opcode: wire.RC | wire.SendLast, PSN: 5000, Payload: []byte("x")}, 0)
	if f := s.qp.First(); f == nil || !f.Heard || f.Status != RemInvReqErr || f.Peer != dstAddr.String() ||
		f.Syndrome != wire.SynInvReq || f.DestQPN != 0x22 || f.QPN != s.qp.Num {
		t.Errorf("%+v", f)
	}
}
