package transport

import (
	"errors"
	"fmt"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
)

// newSegmenter returns a UD QP whose device segments messages, and the list of the segments.
func newSegmenter(t *testing.T, bad error) (s *sender, segments *[]string) {
	t.Helper()
	segments = new([]string)
	s = newSender(t, UD, func(c *Config, _ *Attr) {
		c.IPOffload = &IPOffload{
			Fill:   func(m []byte) { m[0] = '#' },
			Verify: func([]byte) bool { return false },
			Start:  func([]byte) error { return bad },
			Segment: func(m []byte, g Segment) {
				*segments = append(*segments, fmt.Sprintf("%s %d %d %d %v", m[:4], len(m)-4, g.Index, g.Sent, g.Last))
			},
		}
	})
	return s, segments
}

// tso posts a TSO request of n bytes with the header HEAD.
func (s *sender) tso(n int, mss uint16, cuts ...int) {
	s.t.Helper()
	s.post(OpTSO, s.sges(0, n, cuts...), func(w *SendWQE) {
		w.Inline, w.MSS, w.Flags = append(w.Inline, "HEAD"...), mss, Solicited
	})
}

// Each message of a TSO request has the header and MSS bytes, the last one the rest and the SE bit. The request has one
// completion.
func TestSegmentsOfATSORequest(t *testing.T) {
	for _, c := range []struct {
		n    int
		mss  uint16
		want []int
	}{
		{250, 100, []int{100, 100, 50}}, {200, 100, []int{100, 100}}, {201, 100, []int{100, 100, 1}}, {99, 100, []int{99}},
		{100, 100, []int{100}}, {0, 100, []int{0}}, {1020, 1020, []int{1020}}, {3, 1, []int{1, 1, 1}},
	} {
		s, segments := newSegmenter(t, nil)
		s.tso(c.n, c.mss, 30)
		s.send(1)
		var packets, told []string
		sent := 0
		for i, n := range c.want {
			last := i+1 == len(c.want)
			mark := ""
			if last {
				mark = " SE"
			}
			packets = append(packets, fmt.Sprintf("UD SEND ONLY %d%s deth 77 11 +%d", 1000+i, mark, 4+n))
			told = append(told, fmt.Sprintf("HEAD %d %d %d %v", n, i, sent, last))
			sent += n
		}
		packets = append(packets, fmt.Sprintf("UD SEND ONLY %d deth 77 11 +1", 1000+len(c.want)))
		pkts := s.out()
		var got []string
		var data []byte
		for _, p := range pkts {
			got = append(got, show(p))
			if len(p.Payload()) >= 4 {
				data = append(data, p.Payload()[4:]...)
			}
		}
		same(t, "packets", got, packets)
		same(t, "segments", *segments, told)
		if string(data) != string(s.mem.Buf[:c.n]) || s.qp.bytes.sent != uint64(c.n+4*len(c.want)+1) {
			t.Errorf("%d bytes in segments of %d: wrong bytes, %d counted", c.n, c.mss, s.qp.bytes.sent)
		}
		s.completes("wr 1 status 0 op 7", "wr 2 status 0 op 0")
		s.checkIdle()
	}
}

// A batch that is full within a TSO request, or a rate limit, loses no segment.
func TestSegmentsInSmallTurns(t *testing.T) {
	s, segments := newSegmenter(t, nil)
	s.tso(250, 100)
	tx := link.NewTxBatch(1, 4096)
	for turn := range 3 {
		s.qp.Transmit(s.now, tx, 1)
		if want := uint32(min(100*(turn+1), 250)); s.qp.req.from.pos != want {
			t.Errorf("turn %d: the next byte is number %d, want %d", turn, s.qp.req.from.pos, want)
		}
		if s.qp.Transmit(s.now, tx, 64); len(*segments) != turn+1 {
			t.Fatalf("turn %d: %v", turn, *segments)
		}
		tx.Reset()
	}
	s.completes("wr 1 status 0 op 7")
	s, _ = newSegmenter(t, nil)
	s.now = paceStart
	s.qp.SetRate(byteNS, 0)
	s.tso(197, 100)
	s.leaves("first", 1, 28+12+8+4+104)
	s.leaves("last", 1, 28+12+8+4+101+3)
}

// A TSO request that cannot be segmented moves the QP to SQE.
func TestTSORequestsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		do     func(s *sender)
		status Status
		bad    error
	}{
		"no device that segments": {func(s *sender) { s.qp.IPOffload = nil; s.tso(10, 5) }, LocQPOpErr, nil},
		"a bad header":            {func(s *sender) { s.tso(10, 5) }, LocQPOpErr, errors.New("bad")},
		"longer than a packet":    {func(s *sender) { s.tso(1021, 1021) }, LocLenErr, nil},
		"memory without a key": {func(s *sender) {
			s.post(OpTSO, []SGE{{Addr: 1, Length: 9, LKey: 1}}, func(w *SendWQE) { w.MSS = 5 })
		}, LocProtErr, nil},
		"a port of another device": {func(s *sender) {
			p := newPorts()
			s.qp.Ports = p
			s.tso(10, 5)
		}, LocQPOpErr, nil},
	} {
		s, segments := newSegmenter(t, c.bad)
		c.do(s)
		s.sends()
		s.completes(fmt.Sprintf("wr 1 status %d", c.status))
		if s.qp.State() != SQE || len(*segments) != 0 {
			t.Errorf("%s: state %d, segments %v", name, s.qp.State(), *segments)
		}
	}
}
