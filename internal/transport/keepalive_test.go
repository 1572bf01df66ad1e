package transport

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
)

const idle = 50 * time.Millisecond

// newKeeper returns a sender with keep-alive. Not every request has a completion, as usual for programs.
func newKeeper(t *testing.T) *sender {
	t.Helper()
	s := newSender(t, RC, func(c *Config, _ *Attr) { c.SigAll = false })
	s.qp.SetKeepAlive(s.now, idle)
	return s
}

// An idle QP sends a WRITE of 0 bytes at intervals. The program sees no completion, and its requests follow.
func TestKeepAlive(t *testing.T) {
	s := newKeeper(t)
	s.after(int64(idle) - 1)
	s.sends()
	for n := range 3 * s.qp.SQ.Cap() { // far more than the queue has slots
		s.now = s.qp.Deadline()
		s.qp.OnTimer(s.now)
		s.sends(fmt.Sprintf("RC RDMA WRITE ONLY %d A reth 0 0 0", 1000+n))
		s.ack(uint32(1000 + n))
	}
	for range s.qp.SQ.Cap() {
		s.post(OpSend, s.sges(0, 1), func(w *SendWQE) { w.Flags = Signaled })
	}
	if s.qp.Deadline() != Never {
		t.Error("a QP with a request to send checks its peer")
	}
	if n := len(s.out()); n != s.qp.SQ.Cap() {
		t.Errorf("%d packets", n)
	}
	s.ack(uint32(1000 + 4*s.qp.SQ.Cap() - 1))
	if n := len(s.cqes); n != s.qp.SQ.Cap() {
		t.Errorf("%d completions", n)
	}
	s.raises()
}

// Any packet of the peer postpones the next check: a response, or a request.
func TestKeepAliveHears(t *testing.T) {
	s := newKeeper(t)
	s.after(int64(idle) / 2)
	s.ack(42) // a stale one
	if got := s.qp.Deadline(); got != s.now+int64(idle) {
		t.Errorf("deadline %d, want %d", got, s.now+int64(idle))
	}
}

// A peer that has gone is noticed within the idle time and as much again, at least 5 s, whatever ACK timeout the other
// side has chosen; short ACK timeouts count as for any request.
func TestKeepAliveIsBounded(t *testing.T) {
	for _, c := range []struct {
		idle       time.Duration
		code       uint8
		begin, end time.Duration
	}{
		{time.Second, 21, 4 * time.Second, 6 * time.Second},
		{time.Minute, 31, 110 * time.Second, 2 * time.Minute},
		{time.Minute, 17, time.Minute + 14*time.Second, time.Minute + 15*time.Second},
		{time.Millisecond, 14, time.Second, 2 * time.Second},
	} {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.Timeout, a.RetryCnt = c.code, 7 })
		s.qp.SetKeepAlive(s.now, c.idle)
		begin := s.now
		s.after(int64(c.idle))
		n := len(s.out())
		for s.qp.State() == RTS {
			s.timeout()
			n += len(s.out())
		}
		if took := time.Duration(s.now - begin); n != 8 || took < c.begin || took > c.end {
			t.Errorf("idle %v, ACK timeout %v: after %v and %d packets, want %v to %v and 8", c.idle,
				AckTimeout(c.code), took, n, c.begin, c.end)
		}
	}
}

// Requests posted behind an unanswered check are sent again after it, in order.
func TestKeepAliveIsRetransmitted(t *testing.T) {
	s := newKeeper(t)
	s.after(int64(idle))
	s.sends("RC RDMA WRITE ONLY 1000 A reth 0 0 0")
	s.post(OpSend, s.sges(100, 5), func(w *SendWQE) { w.Flags = Signaled })
	s.post(OpRead, s.sges(200, 8), func(w *SendWQE) { w.Flags = Signaled })
	s.sends("RC SEND ONLY 1001 A +5", "RC RDMA READ REQUEST 1002 A reth a000 b0b 8")
	s.timeout()
	s.sends("RC RDMA WRITE ONLY 1000 A reth 0 0 0", "RC SEND ONLY 1001 A +5",
		"RC RDMA READ REQUEST 1002 A reth a000 b0b 8")
	s.nak(1000, wire.SynSeqErr)
	s.sends("RC RDMA WRITE ONLY 1000 A reth 0 0 0", "RC SEND ONLY 1001 A +5",
		"RC RDMA READ REQUEST 1002 A reth a000 b0b 8")
	s.ack(1001)
	s.completes("wr 1 status 0 op 0")
	s.data(wire.ReadRespOnly, 1002, 8)
	s.completes("wr 2 status 0 op 2 len 8")
	s.now = s.qp.Deadline()
	s.qp.OnTimer(s.now)
	s.sends("RC RDMA WRITE ONLY 1003 A reth 0 0 0")
}

// An invalid request behind a check fails when the check is acknowledged, with its own status.
func TestKeepAliveThenInvalidRequest(t *testing.T) {
	s := newKeeper(t)
	s.after(int64(idle))
	s.out()
	s.post(OpSend, []SGE{{Addr: 1, Length: 1, LKey: 1}}, nil)
	s.sends()
	s.completes()
	s.ack(1000)
	s.completes("wr 1 status 4")
}

// A check that nobody acknowledges ends the connection: the requests are flushed with its reason, and QP_FATAL tells
// a program that has none.
func TestKeepAliveFails(t *testing.T) {
	for name, fail := range map[string]func(s *sender){
		"no acknowledgement": func(s *sender) {
			for range 8 {
				s.timeout()
				s.out()
			}
		},
		"NAK invalid request": func(s *sender) { s.nak(1000, wire.SynInvReq) },
		"READ data":           func(s *sender) { s.data(wire.ReadRespOnly, 1000, 8) },
	} {
		s := newKeeper(t)
		if err := s.qp.RQ.Post(9, s.sges(0, 8)); err != nil {
			t.Fatal(err)
		}
		s.after(int64(idle))
		s.out()
		fail(s)
		s.is(Err)
		s.raises("state 6", "event 1")
		if len(s.cqes) != 1 || s.cqes[0].Status != WRFlushErr || s.cqes[0].Cause.First == nil ||
			!strings.Contains(s.cqes[0].Cause.First.Reason, "keep-alive: ") ||
			!strings.Contains(s.cqes[0].Cause.First.Reason, name) {
			t.Errorf("%s: %+v", name, s.cqes)
		}
		s.checkIdle()
	}
}

// The check of an XRC QP names the SRQ of the latest request. Without one there is no check.
func TestKeepAliveOfXRC(t *testing.T) {
	s := newSender(t, XRCSend, nil)
	s.qp.SetKeepAlive(s.now, idle)
	for range 2 {
		if d := s.qp.Deadline(); d != Never {
			t.Errorf("the deadline is %d before the first request", d)
		}
		for _, srqn := range []uint32{8, 9} {
			s.post(OpSend, nil, func(w *SendWQE) { w.SendMore = &SendMore{RemoteSRQN: srqn} })
		}
		s.out()
		s.reply(wire.XRC|wire.Ack, firstPSN+1, wire.SynAck, 0, nil)
		s.after(int64(idle))
		p := s.out()
		if len(p) != 1 || show(p[0]) != "XRC RDMA WRITE ONLY 1002 A reth 0 0 0" || p[0].XRCETH().SRQN() != 9 {
			t.Fatalf("the check is %v", p)
		}
		s.modify(Reset, Attr{}, 0)
		for _, st := range []State{Init, RTR, RTS} {
			s.modify(st, rtsAttr(), everyMask)
		}
	}
}

// RESET, SQD and the end of keep-alive.
func TestKeepAliveStates(t *testing.T) {
	s := newKeeper(t)
	s.after(int64(idle))
	s.out()
	s.modify(Reset, Attr{}, 0)
	if s.qp.Deadline() != Never {
		t.Error("a QP in RESET checks its peer")
	}
	s.now += int64(time.Hour)
	for _, st := range []State{Init, RTR, RTS} {
		s.modify(st, rtsAttr(), everyMask)
	}
	if got := s.qp.Deadline(); got != s.now+int64(idle) {
		t.Errorf("deadline %d, want %d", got, s.now+int64(idle))
	}
	s.after(int64(idle))
	s.sends("RC RDMA WRITE ONLY 1000 A reth 0 0 0")
	s.qp.SetKeepAlive(s.now, 0)
	s.ack(1000)
	s.after(int64(time.Hour))
	s.sends()
	s.modify(SQD, Attr{}, 0)
	s.qp.SetKeepAlive(s.now, idle)
	s.after(int64(time.Hour))
	s.sends()
}

// silent is a host that counts the checks that nobody answered.
type silent struct {
	*sender
	n int
}

func (h *silent) PeerSilent(*QP) { h.n++ }

// The host learns of a peer that does not answer. The end of a peer whose process is known to have ended is no silence.
func TestKeepAliveReportsSilence(t *testing.T) {
	for want, fail := range map[int]func(s *sender){
		1: func(s *sender) {
			for range 8 {
				s.timeout()
				s.out()
			}
		},
		0: func(s *sender) { s.qp.PeerLost(s.now, true) },
	} {
		s := newKeeper(t)
		h := &silent{sender: s}
		s.qp.Host = h
		s.after(int64(idle))
		s.out()
		fail(s)
		if s.is(Err); h.n != want {
			t.Errorf("the host was told %d times, want %d", h.n, want)
		}
	}
}

// Keep-alive is for reliable QPs with a send queue.
func TestKeepAliveOfOtherTypes(t *testing.T) {
	for _, typ := range []Type{UC, UD, XRCRecv} {
		s := newSender(t, typ, func(c *Config, _ *Attr) {
			if typ == XRCRecv {
				c.SQ, c.XRCD = nil, NewXRCD()
			}
		})
		s.qp.SetKeepAlive(s.now, idle)
		if d := s.qp.Deadline(); d != Never {
			t.Errorf("type %d: the deadline is %d", typ, d)
		}
		s.after(int64(2 * idle))
		s.sends()
	}
}
