package transport

import (
	"bytes"
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/psn"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// A stream is a QP that writes messages of 1 MiB to another, over a network that loses packets and delays them.
type stream struct {
	rnd    *rand.Rand
	now    int64
	ends   [2]*streamEnd
	loss   float64
	delay  int64 // of one direction, ns
	posted int
	taken  int // completions
	queued int // most bytes that had arrived at the receiver and were not processed
	hop    *bottleneck
}

type streamEnd struct {
	*sender
	in   []streamPacket
	cost int64 // processor time of a packet, ns
	busy int64 // the processor is busy until then
}

type streamPacket struct {
	at     int64
	data   []byte
	tclass uint8
}

// newStream makes a stream of 2.7 GB/s with round trips of 20 us.
func newStream(t *testing.T, seed uint64, change func(c *Config, a *Attr)) *stream {
	t.Helper()
	s := &stream{rnd: rand.New(rand.NewPCG(seed, 3)), delay: 10 * usec}
	for i := range s.ends {
		end := newSender(t, RC, func(c *Config, a *Attr) {
			c.Num, c.SQ = uint32(0x11+i), NewSendQueue(16, 1, 0)
			a.DestQPN, a.MTU = uint32(0x12-i), 4096
			a.RQPSN, a.Access = firstPSN, uint32(mr.RemoteWrite)
			if i == 1 {
				a.Path.Src, a.Path.Dst = a.Path.Dst, a.Path.Src
			}
			if change != nil {
				change(c, a)
			}
		})
		end.qp.SetWindow(streamWindow, &Budget{Limit: streamWindow})
		s.ends[i] = &streamEnd{sender: end, cost: 1500}
	}
	return s
}

const streamWindow = 4 << 20

// run runs for d ns and returns how many bytes per ns arrived.
func (s *stream) run(d int64) float64 {
	from, end := s.ends[1].qp.resp.epsn, s.now+d
	for s.now < end {
		s.post()
		next := end
		for _, e := range s.ends {
			next = min(next, e.next())
		}
		s.now = max(s.now, next)
		for i, e := range s.ends {
			if e.next() <= s.now {
				s.step(e, s.ends[1-i])
			}
		}
	}
	return float64((s.ends[1].qp.resp.epsn-from)&psn.Mask) * 4096 / float64(d)
}

// next returns when e has something to do.
func (e *streamEnd) next() int64 {
	at := e.qp.Deadline()
	if e.qp.Pending() {
		at = 0
	}
	if len(e.in) > 0 {
		at = min(at, e.in[0].at)
	}
	return max(at, e.busy)
}

func (s *stream) post() {
	a := s.ends[0]
	for ; s.taken < len(a.cqes); s.taken++ {
		if a.cqes[s.taken].Status != Success {
			a.t.Fatalf("status %d", a.cqes[s.taken].Status)
		}
		a.qp.SQ.Release(a.cqes[s.taken].Slot)
	}
	for ; s.posted-s.taken < a.qp.SQ.Cap(); s.posted++ {
		a.post(OpWrite, a.sges(0, memSize), func(w *SendWQE) { w.RKey, w.RemoteAddr = s.ends[1].mem.RKey, memBase })
	}
}

// step lets e process what has arrived, and send.
func (s *stream) step(e, to *streamEnd) {
	e.busy = s.now
	if e == s.ends[1] {
		n, _ := slices.BinarySearchFunc(e.in, s.now+1, func(p streamPacket, at int64) int { return cmp.Compare(p.at, at) })
		s.queued = max(s.queued, n*4096)
	}
	for n := 0; n < 64 && len(e.in) > 0 && e.in[0].at <= s.now; n++ {
		e.qp.OnPacket(s.now, &link.RxPacket{
			Data: e.in[0].data, Src: e.qp.path.Dst, Dst: e.qp.path.Src, TClass: e.in[0].tclass,
		})
		e.in = e.in[1:]
		e.busy += e.cost
	}
	e.qp.OnTimer(s.now)
	e.qp.Transmit(s.now, e.tx, 32)
	for i := range e.tx.Packets {
		e.busy += e.cost
		if s.rnd.Float64() >= s.loss {
			b := e.tx.Bytes(i)
			p := streamPacket{e.busy, bytes.Clone(b[:len(b)-wire.ICRCLen]), e.tx.Packets[i].Path.TClass}
			if s.hop != nil && e == s.ends[0] && !s.hop.pass(&p) {
				continue
			}
			p.at += s.delay
			to.in = append(to.in, p)
		}
	}
	e.tx.Reset()
}

// A connection whose first packets are lost does not wait for the ACK timeout again and again because no round trip was
// measured yet.
func TestLossesBeforeTheFirstRoundTrip(t *testing.T) {
	for seed := range uint64(16) {
		s := newStream(t, seed, nil)
		s.loss = 0.05
		if rate := s.run(150 * msec); rate < 0.4 {
			t.Errorf("seed %d: %.3f GB/s of 2.7", seed, rate)
		}
	}
}

// On a long path the window grows until the path is full, and what queues at the receiver stays within its buffer.
func TestLongPath(t *testing.T) {
	const buffer = 16 << 20
	s := newStream(t, 1, func(c *Config, a *Attr) {
		c.SQ, a.Timeout = NewSendQueue(256, 1, 0), 18
	})
	for _, e := range s.ends {
		e.qp.SetWindow(buffer, &Budget{Limit: buffer})
	}
	s.delay = 50 * msec
	s.ends[0].cost = 1000
	s.ends[1].cost = 4096 // the receiver takes 1 GB/s
	s.run(2400 * msec)
	if rate := s.run(200 * msec); rate < 0.95 {
		t.Errorf("%.3f GB/s of 1", rate)
	}
	if s.queued > buffer {
		t.Errorf("%d bytes waited at the receiver, whose buffer is for %d", s.queued, buffer)
	}
	if n := s.ends[0].qp.Counters.RetransmitPackets; n > 0 {
		t.Errorf("%d packets were sent twice", n)
	}
}
