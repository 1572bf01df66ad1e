package transport

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// flush turns a request into a FLUSH of n bytes.
func flush(n uint32) func(*SendWQE) {
	return func(w *SendWQE) { w.Length, w.Imm = n, flushGlobal }
}

// Each request takes one PSN and completes with its empty response, which acknowledges everything before it.
func TestPlacementRequests(t *testing.T) {
	s := newSender(t, RC, nil)
	s.post(OpWrite, s.sges(0, 1500), nil)
	s.post(OpFlush, nil, flush(1<<30))
	s.post(OpAtomicWrite, s.sges(64, 8, 5), nil)
	s.post(OpFlush, nil, func(w *SendWQE) { w.Imm = flushGlobal | flushMR<<4 })
	s.send(1)
	s.sends(
		"RC RDMA WRITE FIRST 1000 reth a000 b0b 1500 +1024", "RC RDMA WRITE LAST 1001 A +476",
		"RC FLUSH 1002 A flush 1 0 reth a000 b0b 1073741824",
		"RC ATOMIC WRITE 1003 A reth a000 b0b 8 +8",
		"RC FLUSH 1004 A flush 1 1 reth a000 b0b 0",
		"RC SEND ONLY 1005 A +1")
	s.data(wire.ReadRespOnly, 1002, 0)
	s.completes("wr 1 status 0 op 1", "wr 2 status 0 op 8")
	s.data(wire.ReadRespOnly, 1003, 0)
	s.completes("wr 3 status 0 op 9")
	s.ack(1005) // the response to 1004 was lost
	s.sends("RC FLUSH 1004 A flush 1 1 reth a000 b0b 0", "RC SEND ONLY 1005 A +1")
	s.data(wire.ReadRespOnly, 1004, 0)
	s.ack(1005)
	s.completes("wr 4 status 0 op 8", "wr 5 status 0 op 0")
	s.checkIdle()
}

// They count against the initiator depth, and a fence waits for them.
func TestPlacementDepthAndFence(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.MaxRdAtomic = 2 })
	s.post(OpFlush, nil, flush(8))
	s.post(OpAtomicWrite, s.sges(0, 8), nil)
	s.post(OpAtomicWrite, s.sges(0, 8), nil)
	s.post(OpSend, s.sges(0, 1), func(w *SendWQE) { w.Flags = Fence })
	s.sends("RC FLUSH 1000 A flush 1 0 reth a000 b0b 8", "RC ATOMIC WRITE 1001 A reth a000 b0b 8 +8")
	s.data(wire.ReadRespOnly, 1000, 0)
	s.sends("RC ATOMIC WRITE 1002 A reth a000 b0b 8 +8")
	s.timeout()
	s.sends("RC ATOMIC WRITE 1001 A reth a000 b0b 8 +8", "RC ATOMIC WRITE 1002 A reth a000 b0b 8 +8")
	s.data(wire.ReadRespOnly, 1001, 0)
	s.sends()
	s.data(wire.ReadRespOnly, 1002, 0)
	s.sends("RC SEND ONLY 1003 A +1")
}

// Invalid requests fail locally, and invalid responses fail the request.
func TestPlacementFailures(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  Type
		set  func(*Config, *Attr)
		post func(*sender)
		want Status
	}{
		{name: "7 bytes", typ: RC, post: func(s *sender) { s.post(OpAtomicWrite, s.sges(0, 7), nil) }, want: LocLenErr},
		{name: "9 bytes", typ: RC, post: func(s *sender) { s.post(OpAtomicWrite, s.sges(0, 9), nil) }, want: LocLenErr},
		{name: "no region", typ: RC, post: func(s *sender) {
			s.post(OpAtomicWrite, []SGE{{Addr: 1, Length: 8, LKey: 0xBAD}}, nil)
			s.out()
		}, want: LocProtErr},
		{name: "flush of too much", typ: RC, post: func(s *sender) { s.post(OpFlush, nil, flush(maxMessage+1)) },
			want: LocLenErr},
		{name: "depth 0", typ: RC, set: func(_ *Config, a *Attr) { a.MaxRdAtomic = 0 },
			post: func(s *sender) { s.post(OpFlush, nil, flush(8)) }, want: LocQPOpErr},
		{name: "depth 0", typ: RC, set: func(_ *Config, a *Attr) { a.MaxRdAtomic = 0 },
			post: func(s *sender) { s.post(OpAtomicWrite, s.sges(0, 8), nil) }, want: LocQPOpErr},
		{name: "flush of UC", typ: UC, post: func(s *sender) { s.post(OpFlush, nil, flush(8)) }, want: LocQPOpErr},
		{name: "atomic write of UC", typ: UC, post: func(s *sender) { s.post(OpAtomicWrite, s.sges(0, 8), nil) },
			want: LocQPOpErr},
		{name: "data", typ: RC, post: func(s *sender) {
			s.post(OpFlush, nil, flush(8))
			s.out()
			s.data(wire.ReadRespOnly, 1000, 8)
		}, want: BadRespErr},
		{name: "the beginning of data", typ: RC, post: func(s *sender) {
			s.post(OpAtomicWrite, s.sges(0, 8), nil)
			s.out()
			s.data(wire.ReadRespFirst, 1000, 1024)
		}, want: BadRespErr},
		{name: "atomic acknowledgement", typ: RC, post: func(s *sender) {
			s.post(OpFlush, nil, flush(8))
			s.out()
			s.atomicAck(1000, 5)
		}, want: BadRespErr},
		{name: "invalid request", typ: RC, post: func(s *sender) {
			s.post(OpFlush, nil, flush(8))
			s.out()
			s.nak(1000, wire.SynInvReq)
		}, want: RemInvReqErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSender(t, c.typ, c.set)
			c.post(s)
			s.out()
			if len(s.cqes) != 1 || s.cqes[0].Status != c.want || s.cqes[0].ByteLen != 0 {
				t.Errorf("completions %+v, want one of status %d", s.cqes, c.want)
			}
		})
	}
}
