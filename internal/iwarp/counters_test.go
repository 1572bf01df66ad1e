package iwarp

import (
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// Counters count messages and payload, not the empty messages of the protocol itself.
func TestCountersOfMessages(t *testing.T) {
	for _, p := range []Params{{}, {CRC: true}, {RTR: iwarp.RTRWrite}, {RTR: iwarp.RTRRead}, {RTR: iwarp.RTRSend}} {
		p.IRD, p.ORD = 2, 2
		r := rand.New(rand.NewPCG(1, 2))
		c, s := pair(t, p, 100_000, 1500)
		settle(r, c, s) // the first message of peer-to-peer mode
		if *c.qp.Counters != (Counters{}) || *s.qp.Counters != (Counters{}) {
			t.Errorf("%+v: %+v and %+v before the first request", p, *c.qp.Counters, *s.qp.Counters)
		}
		s.recv(1, s.sge(0, 5000))
		s.recv(2)
		c.post(1, transport.OpWrite, at(s, 20_000), c.sge(0, 30_000))
		c.post(2, transport.OpRead, at(s, 60_000), c.sge(50_000, 7000))
		c.post(3, transport.OpSend, nil, c.sge(0, 4000))
		c.post(4, transport.OpWriteImm, at(s, 90_000), c.sge(7, 3))
		c.post(5, transport.OpFetchAdd, at(s, 95_000), c.sge(96_000, 8))
		settle(r, c, s)
		if c.qp.Nudge(); !c.qp.Nudge() {
			t.Errorf("%+v: no nudge", p)
		}
		settle(r, c, s)
		if len(c.done) != 5 || len(s.done) != 2 {
			t.Fatalf("%+v: %v and %v are done", p, list(c.done), list(s.done))
		}
		want := Counters{TxDataBytes: 34_003, RxDataBytes: 7000}
		if *c.qp.Counters != want {
			t.Errorf("%+v: client %+v, want %+v", p, *c.qp.Counters, want)
		}
		want = Counters{RxWriteRequests: 2, RxReadRequests: 1, RxAtomicRequests: 1, TxDataBytes: 7000, RxDataBytes: 34_003}
		if *s.qp.Counters != want {
			t.Errorf("%+v: server %+v, want %+v", p, *s.qp.Counters, want)
		}
	}
}

// A request that is refused counts at both ends, by its reason.
func TestCountersOfRefusals(t *testing.T) {
	for _, f := range []struct {
		name           string
		post           func(c, s *side)
		server, client Counters
	}{
		{"no receive", func(c, _ *side) { c.post(1, transport.OpSend, nil, c.sge(0, 10)) },
			Counters{OutOfBuffer: 1, TxTerminates: 1},
			Counters{ReqRemoteInvalid: 1, RxTerminates: 1, TxDataBytes: 10}},
		{"too long", func(c, s *side) {
			s.recv(1, s.sge(0, 5))
			c.post(1, transport.OpSend, nil, c.sge(0, 10))
		}, Counters{RespLocalLengthError: 1, RespCQEError: 1, TxTerminates: 1},
			Counters{ReqRemoteInvalid: 1, RxTerminates: 1, TxDataBytes: 10}},
		{"wrong key of a WRITE", func(c, _ *side) {
			c.post(1, transport.OpWrite, func(w *transport.SendWQE) { w.RKey = 0xDEAD00 }, c.sge(0, 10))
		}, Counters{RespRemoteAccessErrs: 1, TxTerminates: 1},
			Counters{ReqRemoteAccessErr: 1, RxTerminates: 1, TxDataBytes: 10}},
		{"wrong key of a READ", func(c, _ *side) {
			c.post(1, transport.OpRead, func(w *transport.SendWQE) { w.RKey = 0xDEAD00 }, c.sge(0, 10))
		}, Counters{RespRemoteAccessErrs: 1, TxTerminates: 1}, Counters{ReqRemoteAccessErr: 1, RxTerminates: 1}},
	} {
		for _, crc := range []bool{false, true} {
			c, s := pair(t, Params{CRC: crc, IRD: 1, ORD: 1}, 1000, 0)
			f.post(c, s)
			settle(rand.New(rand.NewPCG(3, 4)), c, s)
			if *s.qp.Counters != f.server || *c.qp.Counters != f.client {
				t.Errorf("%s, CRC %v: server %+v, want %+v; client %+v, want %+v", f.name, crc, *s.qp.Counters, f.server,
					*c.qp.Counters, f.client)
			}
		}
	}
}

// An FPDU with a wrong CRC counts as that.
func TestCountersOfCRCs(t *testing.T) {
	c, s := pair(t, Params{CRC: true, IRD: 1, ORD: 1}, 1000, 0)
	c.post(1, transport.OpWrite, at(s, 0), c.sge(0, 100))
	b := c.drain()
	b[len(b)/2] ^= 1
	s.qp.Feed(b)
	s.drain()
	if want := (Counters{RxCRCErrors: 1, TxTerminates: 1}); *s.qp.Counters != want {
		t.Errorf("%+v, want %+v", *s.qp.Counters, want)
	}
}
