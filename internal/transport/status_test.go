package transport

import (
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// statusCase is one way in which a send work request fails (verbs section 45).
type statusCase struct {
	name   string
	typ    Type
	change func(c *Config, a *Attr)
	do     func(s *sender)
	want   []string // completions
	state  State
	reason string // in the Failure of the first failed request
}

// All requests after the failed one are flushed; an RC QP is in ERR, any other in SQE.
var statusCases = []statusCase{
	{
		name: "V-WC-05 NAK invalid request", do: func(s *sender) {
			s.threeSends()
			s.nak(1001, wire.SynInvReq)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 9", "wr 3 status 5"}, reason: "NAK invalid request",
	}, {
		name: "V-WC-05 NAK remote access error", do: func(s *sender) {
			s.post(OpWrite, s.sges(0, 3000), nil)
			s.send(1)
			s.out()
			s.nak(1000, wire.SynAccess)
		}, want: []string{"wr 1 status 10", "wr 2 status 5"}, reason: "NAK remote access error",
	}, {
		name: "NAK remote operational error", do: func(s *sender) {
			s.threeSends()
			s.nak(1002, wire.SynOpErr)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 0 op 0", "wr 3 status 11"},
		reason: "NAK remote operational error",
	}, {
		name: "NAK for a READ", do: func(s *sender) {
			s.send(1)
			s.post(OpRead, s.sges(0, 3000), nil)
			s.out()
			s.data(wire.ReadRespFirst, 1001, 1024)
			s.nak(1002, wire.SynAccess)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 10"}, reason: "NAK remote access error",
	}, {
		name: "NAK for an atomic", do: func(s *sender) {
			s.post(OpCmpSwap, s.sges(0, 8), nil)
			s.out()
			s.nak(1000, wire.SynInvReq)
		}, want: []string{"wr 1 status 9"}, reason: "NAK invalid request",
	}, {
		name: "reserved NAK code", do: func(s *sender) {
			s.threeSends()
			s.nak(1000, 0x65)
		}, want: []string{"wr 1 status 7", "wr 2 status 5", "wr 3 status 5"}, reason: "reserved syndrome",
	}, {
		name: "reserved syndrome", do: func(s *sender) {
			s.threeSends()
			s.nak(1000, 0x40)
		}, want: []string{"wr 1 status 7", "wr 2 status 5", "wr 3 status 5"}, reason: "reserved syndrome",
	}, {
		name: "READ data for a SEND", do: func(s *sender) {
			s.threeSends()
			s.data(wire.ReadRespOnly, 1001, 1)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 7", "wr 3 status 5"}, reason: "other than a READ",
	}, {
		name: "atomic acknowledge for a READ", do: func(s *sender) {
			s.read(1)
			s.atomicAck(1000, 0)
		}, want: []string{"wr 1 status 7"}, reason: "other than an atomic",
	}, {
		name: "READ data for an atomic", do: func(s *sender) {
			s.post(OpFetchAdd, s.sges(0, 8), nil)
			s.out()
			s.data(wire.ReadRespOnly, 1000, 8)
		}, want: []string{"wr 1 status 7"}, reason: "other than a READ",
	}, {
		name: "READ response begins in its middle", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespMiddle, 1000, 1024)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE MIDDLE",
	}, {
		name: "READ response begins again", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.data(wire.ReadRespFirst, 1001, 1024)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE FIRST",
	}, {
		name: "READ response ends early", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.data(wire.ReadRespLast, 1001, 1024)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE LAST",
	}, {
		name: "READ response only, of many", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespOnly, 1000, 1024)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE ONLY",
	}, {
		name: "READ response last, of one", do: func(s *sender) {
			s.read(100)
			s.data(wire.ReadRespLast, 1000, 100)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE LAST",
	}, {
		name: "READ response does not end", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.data(wire.ReadRespMiddle, 1001, 1024)
			s.data(wire.ReadRespMiddle, 1002, 952)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE MIDDLE",
	}, {
		name: "READ response first, of one", do: func(s *sender) {
			s.read(1024)
			s.data(wire.ReadRespFirst, 1000, 1024)
		}, want: []string{"wr 1 status 7"}, reason: "RDMA READ RESPONSE FIRST",
	}, {
		name: "READ response too short", do: func(s *sender) {
			s.read(100)
			s.data(wire.ReadRespOnly, 1000, 99)
		}, want: []string{"wr 1 status 7"}, reason: "wrong length",
	}, {
		name: "READ response too long", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.data(wire.ReadRespMiddle, 1001, 1024)
			s.data(wire.ReadRespLast, 1002, 953)
		}, want: []string{"wr 1 status 7"}, reason: "wrong length",
	}, {
		name: "READ response first, short", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1020)
		}, want: []string{"wr 1 status 7"}, reason: "wrong length",
	}, {
		name: "READ response with a NAK in it", do: func(s *sender) {
			s.read(3)
			s.reply(wire.ReadRespOnly, 1000, wire.SynAccess, 0, []byte{1, 2, 3})
		}, want: []string{"wr 1 status 7"}, reason: "data together with a NAK",
	}, {
		name: "gather: no such key", do: func(s *sender) {
			s.threeSends()
			s.post(OpSend, []SGE{{Addr: memBase, Length: 4, LKey: 0x999}}, nil)
			s.send(1)
			s.sends() // nothing, and nothing after it
			s.completes()
			s.ack(1001)
			s.completes("wr 1 status 0 op 0", "wr 2 status 0 op 0")
			s.is(RTS) // earlier requests complete first
			s.ack(1002)
		}, want: []string{"wr 3 status 0 op 0", "wr 4 status 4", "wr 5 status 5"},
		reason: "SGE 0 (address 0x10000, length 4, lkey 0x999)",
	}, {
		name: "gather: outside the region", do: func(s *sender) {
			s.post(OpWrite, append(s.sges(0, 10), s.sges(memSize-5, 6)...), nil)
			s.sends()
		}, want: []string{"wr 1 status 4"}, reason: "SGE 1",
	}, {
		name: "gather: outside the region, behind what fits the first packet", do: func(s *sender) {
			s.post(OpWrite, append(s.sges(0, 2000), s.sges(memSize-5, 6)...), nil)
			s.sends()
		}, want: []string{"wr 1 status 4"}, reason: "SGE 1",
	}, {
		name: "gather: another protection domain", change: func(c *Config, _ *Attr) { c.PD = testPD + 1 },
		do: func(s *sender) {
			s.send(1)
			s.sends()
		}, want: []string{"wr 1 status 4"}, reason: "another protection domain",
	}, {
		name: "gather: the region goes away in the middle of the message", do: func(s *sender) {
			s.qp.SetWindow(2*(1024+packetCost), nil)
			s.send(1)
			s.send(10000)
			s.out()
			s.ack(1000)
			s.completes("wr 1 status 0 op 0")
			s.unregister()
			s.ack(1001)
			s.sends()
		}, want: []string{"wr 2 status 4"}, reason: "no region",
	}, {
		name: "gather: the same, and the peer refuses the packet before", do: func(s *sender) {
			s.qp.SetWindow(2*(1024+packetCost), nil)
			s.send(1)
			s.send(10000)
			s.out()
			s.unregister()
			s.qp.SetWindow(0, nil)
			s.sends()
			s.nak(1001, wire.SynAccess)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 4"}, reason: "no region",
	}, {
		name: "READ into memory without LOCAL_WRITE", do: func(s *sender) {
			s.send(1)
			s.post(OpRead, s.readOnly(100), nil)
			s.sends("RC SEND ONLY 1000 A +1")
			s.ack(1000)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 4"}, reason: "does not permit",
	}, {
		name: "atomic into memory without LOCAL_WRITE", do: func(s *sender) {
			s.post(OpFetchAdd, s.readOnly(8), nil)
			s.sends()
		}, want: []string{"wr 1 status 4"}, reason: "does not permit",
	}, {
		name: "READ whose region goes away", do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.unregister()
			s.data(wire.ReadRespMiddle, 1001, 1024)
		}, want: []string{"wr 1 status 4"}, reason: "no region",
	}, {
		name: "atomic whose region goes away", do: func(s *sender) {
			s.post(OpFetchAdd, s.sges(0, 8), nil)
			s.out()
			s.unregister()
			s.atomicAck(1000, 1)
		}, want: []string{"wr 1 status 4"}, reason: "no region",
	}, {
		name: "atomic with 7 bytes for the value", do: func(s *sender) {
			s.post(OpFetchAdd, s.sges(0, 7), nil)
			s.sends()
		}, want: []string{"wr 1 status 1"}, reason: "8 bytes",
	}, {
		name: "V-TR-06 more than 2^31 bytes", do: func(s *sender) {
			s.post(OpRead, s.sges(0, 7), func(w *SendWQE) { w.Length = maxMessage + 1 })
			s.sends()
		}, want: []string{"wr 1 status 1"}, reason: "2^31",
	}, {
		name: "READ with an initiator depth of 0", change: func(_ *Config, a *Attr) { a.MaxRdAtomic = 0 },
		do: func(s *sender) {
			s.read(1)
		}, want: []string{"wr 1 status 2"}, reason: "max_rd_atomic",
	}, {
		name: "LOCAL_INV of a key that is no window's", do: func(s *sender) {
			s.send(1)
			s.post(OpLocalInv, nil, func(w *SendWQE) { w.Imm = s.mem.RKey })
			s.out()
			s.ack(1000)
			s.out()
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 2"}, reason: "no bound memory window of type 2",
	}, {
		name: "BIND_MW that is refused", do: func(s *sender) {
			s.bind(s.window(mr.Type2), 0x10000, 1) // the region lacks MW_BIND
			s.sends()
		}, want: []string{"wr 1 status 6"}, reason: "does not permit",
	}, {
		name: "BIND_MW that is refused, UC", typ: UC, do: func(s *sender) {
			s.bind(s.window(mr.Type1), 0x10000, 1)
			s.sends()
		}, want: []string{"wr 1 status 6"}, reason: "does not permit", state: SQE,
	}, {
		name: "V-SEND-07 UD has no windows", typ: UD, do: func(s *sender) {
			s.bind(s.window(mr.Type1), 0x10000, 1)
			s.sends()
		}, want: []string{"wr 1 status 2"}, reason: "operation", state: SQE,
	}, {
		name: "V-TR-01 UC does no READ", typ: UC, do: func(s *sender) {
			s.send(1)
			s.post(OpRead, s.sges(0, 1), nil)
			s.send(1)
			s.sends("UC SEND ONLY 1000 +1")
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 2", "wr 3 status 5"}, state: SQE, reason: "operation",
	}, {
		name: "V-TR-01 UD does no WRITE", typ: UD, do: func(s *sender) {
			s.post(OpWrite, s.sges(0, 1), nil)
			s.sends()
		}, want: []string{"wr 1 status 2"}, state: SQE, reason: "operation",
	}, {
		name: "V-TR-04 UD message above the MTU", typ: UD, do: func(s *sender) {
			s.send(1025)
			s.send(1)
			s.sends()
		}, want: []string{"wr 1 status 1", "wr 2 status 5"}, state: SQE, reason: "one packet",
	}, {
		name: "V-QPS-13 UC gather error", typ: UC, do: func(s *sender) {
			s.post(OpSend, []SGE{{Addr: memBase - 1, Length: 4, LKey: s.mem.LKey}}, nil)
			s.sends()
		}, want: []string{"wr 1 status 4"}, state: SQE, reason: "outside the region",
	}, {
		name: "V-QPS-13 UD gather error", typ: UD, do: func(s *sender) {
			s.post(OpSend, []SGE{{Addr: memBase, Length: 4}}, nil)
			s.sends()
		}, want: []string{"wr 1 status 4"}, state: SQE, reason: "no region",
	}, {
		name: "no answer", change: func(_ *Config, a *Attr) { a.RetryCnt = 2 }, do: func(s *sender) {
			s.threeSends()
			for range 2 {
				s.timeout()
				if got := len(s.out()); got != 3 {
					s.t.Errorf("%d packets were sent again", got)
				}
			}
			s.timeout()
			s.sends()
		}, want: []string{"wr 1 status 12", "wr 2 status 5", "wr 3 status 5"}, reason: "no acknowledgement",
	}, {
		name: "NAK sequence error with no retry", change: func(_ *Config, a *Attr) { a.RetryCnt = 0 }, do: func(s *sender) {
			s.threeSends()
			s.nak(1001, wire.SynSeqErr)
		}, want: []string{"wr 1 status 0 op 0", "wr 2 status 12", "wr 3 status 5"}, reason: "sequence error",
	}, {
		name: "lost READ response with no retry", change: func(_ *Config, a *Attr) { a.RetryCnt = 0 }, do: func(s *sender) {
			s.read(3000)
			s.data(wire.ReadRespFirst, 1000, 1024)
			s.data(wire.ReadRespLast, 1002, 952)
		}, want: []string{"wr 1 status 12"}, reason: "responses",
	}, {
		name: "V-KC-02 receiver not ready, no retry", change: func(_ *Config, a *Attr) { a.RNRRetry = 0 },
		do: func(s *sender) {
			s.threeSends()
			s.nak(1000, wire.SynRNR|3)
		}, want: []string{"wr 1 status 13", "wr 2 status 5", "wr 3 status 5"}, reason: "no receive posted",
	}, {
		name: "receiver not ready, 2 retries", change: func(_ *Config, a *Attr) { a.RNRRetry = 2 }, do: func(s *sender) {
			s.threeSends()
			for range 2 {
				s.nak(1000, wire.SynRNR|3)
				s.sends()
				s.timeout()
				if got := len(s.out()); got != 3 {
					s.t.Errorf("%d packets were sent again", got)
				}
			}
			s.nak(1000, wire.SynRNR|3)
			s.sends()
		}, want: []string{"wr 1 status 13", "wr 2 status 5", "wr 3 status 5"}, reason: "no receive posted",
	},
}

func (s *sender) threeSends() {
	for range 3 {
		s.send(1)
	}
	s.out()
}

func (s *sender) read(n int) {
	s.post(OpRead, s.sges(0, n), nil)
	s.out()
}

// readOnly registers n read-only bytes.
func (s *sender) readOnly(n int) []SGE {
	r := &mr.Region{PD: testPD, Base: 0x9000, Buf: make([]byte, n), Access: mr.RemoteRead}
	if err := s.qp.Regions.Add(r); err != nil {
		s.t.Fatal(err)
	}
	return []SGE{{Addr: 0x9000, Length: uint32(n), LKey: r.LKey}}
}

func TestV_WC_05_EveryStatusOfASend(t *testing.T) {
	for _, c := range statusCases {
		t.Run(c.name, func(t *testing.T) {
			if c.typ == 0 {
				c.typ, c.state = RC, Err
			}
			s := newSender(t, c.typ, c.change)
			c.do(s)
			s.checkFailure(c)
			s.completes(c.want...)
			s.is(c.state)
			s.raises(map[State]string{Err: "state 6", SQE: "state 5"}[c.state])
			s.sends()
			s.checkIdle()

			// X-QPS-01: requests posted now are flushed, signalled or not.
			s.qp.SigAll = false
			s.send(1)
			if got := len(s.cqes); got != 1 || s.cqes[0].Status != WRFlushErr || s.cqes[0].Cause.First == nil {
				t.Errorf("posted after the failure: %+v", s.cqes)
			}
			s.sends()
			s.raises()
		})
	}
}

// checkFailure checks the details of the failed completion, and that flushed ones refer to it.
func (s *sender) checkFailure(c statusCase) {
	s.t.Helper()
	var first *Failure
	for _, e := range s.cqes {
		switch f := e.Cause; {
		case e.Status == Success:
		case first == nil:
			first = f
			if f.First != nil || f.QPN != s.qp.Num || f.Peer != dstAddr.String() || !strings.Contains(f.Reason, c.reason) {
				s.t.Errorf("failure %+v, want reason %q", *f, c.reason)
			}
			if e.VendorErr != uint32(f.Syndrome) {
				s.t.Errorf("vendor error %x, syndrome %x", e.VendorErr, f.Syndrome)
			}
		case f.First != first:
			s.t.Errorf("wr %d was flushed because of %+v", e.WRID, f.First)
		}
	}
	if first == nil {
		s.t.Fatal("nothing failed")
	}
}

// A failure reports the start of the request, the PSNs sent and acknowledged, and whether the peer responded.
func TestFailureDetails(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt, a.Timeout = 1, 8 })
	s.now = 5 * msec
	s.send(1)
	s.send(2000)
	s.out()
	s.ack(1000)
	s.timeout()
	s.out()
	s.timeout()
	f := s.cqes[1].Cause
	if f.LastSent != 1002 || f.LastAck != 1000 || f.Retries != 1 || !f.Heard || f.DestQPN != 0x22 ||
		int64(f.Elapsed) != s.now-5*msec {
		t.Errorf("%+v", *f)
	}
	if f.Elapsed != 3*AckTimeout(8) { // the second wait is twice as long
		t.Errorf("gave up after %v", f.Elapsed)
	}

	s = newSender(t, UD, nil)
	s.send(2000)
	s.out()
	if f := s.cqes[0].Cause; f.DestQPN != 0x33 || f.Peer != dstAddr.String() || f.Heard || f.Elapsed != 0 {
		t.Errorf("%+v", *f)
	}
}

// A failure reports send errors of this host since the last acknowledgement, not earlier ones or those of an earlier
// path.
func TestFailureReportsSendErrors(t *testing.T) {
	tooLong := link.RefusalOf(syscall.EMSGSIZE, 4140)
	fail := func(refuse func(s *sender)) link.Refusal {
		s := newSender(t, RC, func(_ *Config, a *Attr) { a.RetryCnt = 1 })
		s.send(2000)
		s.out()
		refuse(s)
		s.timeout()
		s.out()
		s.timeout()
		if n := len(s.cqes); n != 1 || s.cqes[0].Status != RetryExcErr {
			t.Fatalf("%d completions", n)
		}
		return s.cqes[0].Cause.Refused
	}
	if got := fail(func(s *sender) { s.qp.Path().Refused = tooLong }); got != tooLong {
		t.Errorf("%+v", got)
	}
	if got := fail(func(s *sender) { s.qp.Path().Refused = tooLong; s.ack(1000); s.out() }); got != (link.Refusal{}) {
		t.Errorf("before an acknowledgement: %+v", got)
	}
	if got := fail(func(s *sender) { s.qp.Path().Refused = tooLong; s.qp.takePath() }); got != (link.Refusal{}) {
		t.Errorf("on another path: %+v", got)
	}
	if got := fail(func(*sender) {}); got != (link.Refusal{}) {
		t.Errorf("nothing: %+v", got)
	}
}

// The end of the peer's process is reported, by a waiting request and by a QP without one.
func TestFailureReportsTheEndOfThePeer(t *testing.T) {
	s := newSender(t, RC, nil)
	s.send(1)
	s.out()
	s.qp.PeerLost(s.now, false)
	if f := s.cqes[0].Cause; f.Status != RetryExcErr || !f.PeerEnded || !strings.Contains(f.Reason, "process has ended") {
		t.Errorf("%+v", *f)
	}
	s = newSender(t, RC, nil)
	s.qp.PeerLost(s.now, true)
	s.send(1)
	if f := s.cqes[0].Cause; f.Status != WRFlushErr || f.First == nil || f.First.Status != RetryExcErr ||
		!f.First.PeerEnded {
		t.Errorf("%+v", *f)
	}
}
