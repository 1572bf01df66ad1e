package transport

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/wire"
)

const (
	byteNS    = 8e9 // bits per second: one byte in a nanosecond
	paceStart = 1e12
)

// paced returns a sender with a rate limit of its path and one of its QP.
func paced(t *testing.T, typ Type, path, limit uint64, burst int64) *sender {
	t.Helper()
	s := newSender(t, typ, func(c *Config, a *Attr) {
		a.Path.Rate, a.Access = path, uint32(mr.RemoteRead)
		if typ == XRCRecv {
			c.SQ, c.RQ, c.SendCQ, c.RecvCQ, c.PD, c.XRCD = nil, nil, nil, nil, 0, NewXRCD()
			c.XRCD.Add(&XRCSRQ{Num: 1, Queue: NewRecvQueue(4, 1, true, testPD)})
		}
	})
	s.now = paceStart
	s.qp.SetRate(limit, burst)
	return s
}

// leave returns the number of packets that leave now.
func (s *sender) leave() (n int) {
	s.t.Helper()
	for more := true; more; {
		more = s.qp.Transmit(s.now, s.tx, 64)
		n += s.tx.Count()
		s.tx.Reset()
	}
	return n
}

// leaves checks that n packets leave now, and that the next ones leave after wait ns and not before. 0: no wait.
func (s *sender) leaves(what string, n int, wait int64) {
	s.t.Helper()
	if got := s.leave(); got != n {
		s.t.Errorf("%s: %d packets left, want %d", what, got, n)
	}
	if wait == 0 {
		if until := s.qp.pace.until; until != 0 {
			s.t.Errorf("%s: the QP waits for %d ns, want no wait", what, until-s.now)
		}
		return
	}
	if got := s.qp.Deadline() - s.now; got != wait {
		s.t.Errorf("%s: the deadline is in %d ns, want %d", what, got, wait)
	}
	s.after(wait - 1)
	if got := s.leave(); got != 0 {
		s.t.Errorf("%s: %d packets left 1 ns before their time", what, got)
	}
	s.after(1)
}

// The smaller one of the limits of the QP and of the path holds, for whole IP packets of each kind.
func TestRateLimits(t *testing.T) {
	const ipv4, head = 28, wire.BTHLen + wire.ICRCLen
	for _, c := range []struct {
		name        string
		typ         Type
		path, limit uint64
		op          Op
		n           int
		wait        int64
	}{
		{"of the path", RC, byteNS, 0, OpSend, 1000, ipv4 + head + 1000},
		{"of the QP", RC, 0, byteNS, OpSend, 1000, ipv4 + head + 1000},
		{"of the path is smaller", RC, byteNS, 2 * byteNS, OpSend, 1000, ipv4 + head + 1000},
		{"of the QP is smaller", RC, 2 * byteNS, byteNS, OpSend, 1000, ipv4 + head + 1000},
		{"pad", UC, 0, byteNS, OpSend, 997, ipv4 + head + 1000},
		{"header of a datagram", UD, 0, byteNS, OpSend, 0, ipv4 + head + 8},
		{"READ request", RC, 0, byteNS, OpRead, 1000, ipv4 + head + 16},
	} {
		s := paced(t, c.typ, c.path, c.limit, 0)
		for range 2 {
			s.post(c.op, s.sges(0, c.n), nil)
		}
		s.leaves(c.name, 1, c.wait)
		s.leaves(c.name, 1, c.wait)
	}
	s := paced(t, RC, 0, 0, 0)
	s.send(1000)
	s.send(1000)
	s.leaves("none", 2, 0)
}

// A train counts as its packets.
func TestRateLimitOfATrain(t *testing.T) {
	s := paced(t, RC, 0, byteNS, 0)
	s.tx.Direct = &reader{}
	s.post(OpSend, s.sges(0, 2048), nil)
	s.send(1)
	s.leaves("train", 1, 2*(28+wire.BTHLen+wire.ICRCLen)+2048)
	s.leaves("next", 1, 28+wire.BTHLen+wire.ICRCLen+4)
}

// After a pause a QP sends its burst at once. A pause longer than that gives no more.
func TestRateLimitWithBurst(t *testing.T) {
	const packet = 28 + wire.BTHLen + wire.ICRCLen + 1000
	s := paced(t, RC, 0, byteNS, 3000)
	for range 8 {
		s.send(1000)
	}
	s.leaves("burst", 3, 3*packet-3000)
	s.leaves("then one at a time", 1, packet)
	s.leaves("again", 1, packet)
}

// A timer that comes late delays nothing that waited, up to maxLate. A pause without work is not made up for.
func TestLatenessIsMadeUpFor(t *testing.T) {
	const packet = 28 + wire.BTHLen + wire.ICRCLen + 1000
	const ms = 1000 * packet // at 1 byte in 1 µs a packet takes somewhat more than 1 ms
	for _, c := range []struct {
		name       string
		busy       bool
		late, wait int64
		n          int
	}{
		{"late", true, 500_000, ms - 500_000, 1},
		{"very late", true, 5_000_000, 2*ms - maxLate, 2},
		{"idle", false, 500_000, ms, 1},
	} {
		s := paced(t, RC, 0, byteNS/1000, 0)
		s.send(1000)
		for range 5 {
			if c.busy {
				s.send(1000)
			}
		}
		s.leaves(c.name, 1, ms)
		s.now += c.late
		for range 5 {
			if !c.busy {
				s.send(1000)
			}
		}
		s.leaves(c.name, c.n, c.wait)
	}
}

// READ responses wait, those of a QP without a send queue too. Acknowledgements do not, and do not count.
func TestRateLimitOfResponses(t *testing.T) {
	const response = 28 + wire.BTHLen + wire.AETHLen + wire.ICRCLen + 1024
	for _, typ := range []Type{RC, XRCRecv} {
		s := paced(t, typ, 0, byteNS/1000, 0)
		s.arrives(wire.Fields{
			Opcode: s.qp.prefix() | wire.ReadRequest, PSN: 5000, Addr: memBase, RKey: s.mem.RKey, DMALen: 3 * 1024, SRQN: 1,
		}, 0)
		if !s.qp.Replying() {
			t.Error("the QP has no reply to send")
		}
		s.leaves("first", 1, 1000*response)
		s.now += 100
		s.leaves("middle, late", 1, 1000*(response-wire.AETHLen)-100)
		if s.leave(); s.qp.Replying() {
			t.Error("the QP has a reply to send after all responses")
		}
	}
	s := paced(t, RC, 0, byteNS, 0)
	s.send(1000)
	s.send(1000)
	s.leave()
	until := s.qp.pace.until
	s.arrives(wire.Fields{Opcode: wire.RC | wire.WriteOnly, PSN: 5000, AckReq: true}, 0)
	s.qp.resp.ack(5000)
	if n := s.leave(); n != 1 || s.qp.pace.until != until {
		t.Errorf("%d packets left while the QP waits, want the acknowledgement; the wait changed by %d ns", n,
			s.qp.pace.until-until)
	}
}

// Replying is false while READ responses wait for their time.
func TestReplyingWithinARateLimit(t *testing.T) {
	s := paced(t, RC, 0, byteNS, 0)
	if s.qp.Replying() {
		t.Error("an idle QP has a reply to send")
	}
	s.arrives(wire.Fields{
		Opcode: wire.RC | wire.ReadRequest, PSN: 5000, Addr: memBase, RKey: s.mem.RKey, DMALen: 2 * 1024,
	}, 0)
	s.leave()
	if !s.qp.resp.pending() || s.qp.Replying() {
		t.Error("a response is to be sent at once although it waits for its time")
	}
}

// A changed limit holds at once.
func TestRateLimitIsChanged(t *testing.T) {
	s := paced(t, RC, 0, byteNS, 0)
	for range 3 {
		s.send(1000)
	}
	s.leave()
	s.qp.SetRate(2*byteNS, 0)
	s.leaves("doubled", 1, (28+wire.BTHLen+wire.ICRCLen+1000)/2)
	s.qp.SetRate(0, 0)
	s.leaves("none", 1, 0)
}

// The ACK timeout does not run between the packets of a message, none of which has asked for an answer. It runs from
// the packet that asks.
func TestNoAckTimeoutWithinARateLimit(t *testing.T) {
	s := newSender(t, RC, func(_ *Config, a *Attr) { a.Timeout = 1 })
	s.now = paceStart
	s.qp.SetRate(byteNS/10000, 0) // more than 10 ms for a packet
	s.send(2000)
	s.leaves("first", 1, 10000*(28+wire.BTHLen+wire.ICRCLen+1024))
	if n := s.leave(); n != 1 || s.qp.Counters.RetransmitPackets != 0 {
		t.Errorf("%d packets left, %d of them again", n, s.qp.Counters.RetransmitPackets)
	}
	if d := s.qp.Deadline() - s.now; d != int64(minAckTimeout) {
		t.Errorf("the deadline after the last packet is in %d ns, want the ACK timeout", d)
	}
	// Without a limit the timer runs at once.
	s = newSender(t, RC, nil)
	s.send(2000)
	s.qp.Transmit(s.now, s.tx, 1)
	if d := s.qp.Deadline(); d != int64(AckTimeout(14)) {
		t.Errorf("the deadline within a message is %d ns, want the ACK timeout", d)
	}
}

// The addresses in IPv6 packets are longer.
func TestRateLimitOverIPv6(t *testing.T) {
	path := link.Path{Src: peerAddr, Dst: peerAddr}
	for want, dst := range map[int64]string{28 + 20: "192.0.2.1", 48 + 20: "2001:db8::1"} {
		path.Dst = netip.MustParseAddr(dst)
		qp := &QP{pace: pace{limit: byteNS}}
		qp.charge(0, &path, wire.BTHLen, 1, 4)
		if qp.pace.until != want {
			t.Errorf("%s: a packet takes %d ns, want %d", dst, qp.pace.until, want)
		}
	}
}

// The end of a wait does not begin the ACK timeout of a packet that has asked for its answer before.
func TestAckTimeoutRunsWithinARateLimit(t *testing.T) {
	s := paced(t, RC, 0, byteNS/10000, 0) // 10.44 ms for a packet
	s.send(1000)
	s.leaves("packet", 1, 10000*(28+wire.BTHLen+wire.ICRCLen+1000))
	if d := s.qp.Deadline() - paceStart; d != int64(AckTimeout(14)) {
		t.Errorf("the deadline is %d ns after the packet, want the ACK timeout", d)
	}
}

// TestLongestBurst checks that the bytes that ibv_modify_qp_rate_limit takes at most, 2^32-1, are a burst and no wait.
func TestLongestBurst(t *testing.T) {
	for _, rate := range []uint64{1000, byteNS} {
		s := paced(t, RC, 0, rate, 1<<32-1)
		for range 10 {
			s.send(1000)
		}
		s.leaves("10 packets", 10, 0)
	}
}

// An acknowledgement does not wait for the rate: a QP that is reset or destroyed meanwhile sends it first.
func TestReplyingWithAnAckWithinARateLimit(t *testing.T) {
	s := paced(t, RC, 0, byteNS, 0)
	s.send(1000)
	s.send(1000)
	s.leave()
	s.qp.resp.ack(4999)
	if s.qp.pace.until == 0 || !s.qp.Replying() {
		t.Error("the acknowledgement waits for the time of the next request")
	}
}
