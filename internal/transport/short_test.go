package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// places is a Direct that places all packets, as many as room.
type places struct {
	packets [][]byte
	counted []link.Ack
	room    int
	train   int
}

func (p *places) PlaceCounted(path *link.Path, qpn uint32, n int, a link.Ack) ([]byte, bool) {
	p.counted = append(p.counted, a)
	return p.Place(path, qpn, n, false)
}

func (p *places) Place(_ *link.Path, _ uint32, n int, _ bool) ([]byte, bool) {
	if p.room == 0 {
		return nil, true
	}
	p.room--
	p.packets = append(p.packets, bytes.Repeat([]byte{0xA5}, n))
	return p.packets[len(p.packets)-1], true
}

func (p *places) Train(*link.Path, uint32) int { return p.train }
func (p *places) Publish()                     {}

// A shortSender sends what it can by PlaceShort if short is set, and all by Transmit otherwise.
type shortSender struct {
	*sender
	*places
	short bool
	used  int // times that PlaceShort has placed
}

func newShortSender(t *testing.T, typ Type, short bool) *shortSender {
	some := newSender(t, typ, func(c *Config, _ *Attr) { c.SigAll = false })
	s := &shortSender{sender: some, places: &places{}, short: short}
	s.tx.Direct = s.places
	return s
}

// flush sends.
func (s *shortSender) flush() {
	s.tx.Reset()
	if s.short && s.qp.PlaceShort(s.places) {
		s.qp.SentShort(s.now)
		s.used++
		return
	}
	s.qp.Transmit(s.now, s.tx, 32)
}

// state describes all that a later packet depends on.
func (s *shortSender) state() string {
	r := s.qp.req
	wqes := ""
	for i := r.head; i != s.qp.SQ.Posted(); i++ {
		wqes += fmt.Sprintf(" %+v", s.qp.SQ.At(i).requesterWQE)
	}
	keep := ""
	if r.keep != nil {
		keep = fmt.Sprint(r.keep.heard, r.keep.out)
	}
	r.qp, r.sq, r.pieces, r.bad, r.keep, r.life = nil, nil, nil, nil, nil, 0
	qp := s.qp
	return fmt.Sprintf("%+v keep %s bad %v\n%s\n%+v\n%d %d %v", r, keep, qp.req.bad, wqes, qp.Totals(),
		qp.Deadline(), qp.State(), qp.pace)
}

// step does something at random; equal rnd do the same.
func (s *shortSender) step(rnd *rand.Rand) {
	una, nxt := s.qp.req.una, s.qp.req.max
	sent := int(nxt-una) & 0xffffff
	switch k := rnd.IntN(60); {
	case k < 30 && s.qp.SQ.Posted()-s.qp.SQ.polled.Load() < 60:
		s.postAny(rnd)
	case k < 45 && sent > 0:
		s.answerAll()
	case k < 50 && sent > 0:
		s.ack(una + uint32(rnd.IntN(sent)))
	case k == 50 && sent > 0:
		s.nak(una+uint32(rnd.IntN(sent)), wire.SynSeqErr)
	case k == 51 && sent > 0:
		s.nak(una+uint32(rnd.IntN(sent)), wire.SynRNR|1)
	case k == 52:
		s.qp.SetRate([]uint64{0, 0, 1e9}[rnd.IntN(3)], 0)
	case k == 53:
		s.qp.SetWindow([]int{1 << 10, 4 << 10, 1 << 18}[rnd.IntN(3)], nil)
	case k == 54:
		s.qp.resp.cnpDue = true
	default:
		s.after(int64(rnd.IntN(2e6)))
	}
	s.room = []int{0, 1, 1000, 1000}[rnd.IntN(4)]
	if rnd.IntN(8) > 0 {
		s.flush()
	}
}

// answerAll answers all requests that were sent.
func (s *shortSender) answerAll() {
	r := &s.qp.req
	for r.una != r.max && s.qp.State() == RTS {
		switch w := r.oldest(); {
		case !w.waitsForAnswer():
			s.ack(r.una)
		case w.Op == OpRead:
			s.data(wire.ReadRespOnly, r.una, int(w.Length))
		default:
			s.atomicAck(r.una, 7)
		}
	}
}

// postShort posts n SENDs of 3 bytes, inline.
func (s *shortSender) postShort(n int) {
	for range n {
		s.post(OpSend, nil, func(w *SendWQE) { w.Flags, w.Inline, w.Length = Inline, append(w.Inline, 1, 2, 3), 3 })
	}
}

// postAny posts a request of any operation, length and flags, mostly inline.
func (s *shortSender) postAny(rnd *rand.Rand) {
	op := []Op{OpSend, OpSendImm, OpWrite, OpWriteImm, OpSend, OpWrite, OpRead, OpFetchAdd, OpSendInv}[rnd.IntN(9)]
	n := []int{0, 1, 8, 9, 64, 512}[rnd.IntN(6)]
	if op == OpFetchAdd {
		n = 8
	}
	flags := Signaled & SendFlags(rnd.Uint32()|rnd.Uint32())
	flags |= Solicited&SendFlags(rnd.Uint32()) | Fence&SendFlags(rnd.Uint32()&rnd.Uint32())
	sges := s.sges(rnd.IntN(1000), n)
	if rnd.IntN(8) == 0 {
		sges = s.sges(rnd.IntN(1000), n, rnd.IntN(10))
	}
	if rnd.IntN(400) == 0 {
		sges[0].LKey++
	}
	s.post(op, sges, func(w *SendWQE) {
		w.Flags = flags
		if 1<<op&answeredOps == 0 && rnd.IntN(2) != 0 {
			w.Flags |= Inline
			w.Inline, w.SGEs = append(w.Inline[:0], s.mem.Buf[:n]...), nil
		}
	})
}

// A quietTap captures nothing.
type quietTap struct{ link.Tap }

func (quietTap) Placed(*link.Path, []byte, bool) {}
func (quietTap) Request(uint64, uint32, string)  {}
func (quietTap) Sent()                           {}

// transmitShort leaves the same packets, completions and state as the general code, which sends if there is a capture.
func TestTransmitShortIsTransmit(t *testing.T) {
	for seed := range uint64(120) {
		long, short := newShortSender(t, RC, false), newShortSender(t, RC, false)
		long.tx.Tap = quietTap{}
		long.train, short.train = 1, 1
		sameSteps(t, seed, long, short)
	}
}

// transmitShort takes the requests up to the first one that is not short, at most as many as the budget, and only if
// the peer is on this host and nothing is captured.
func TestTransmitShortTakes(t *testing.T) {
	for _, c := range []struct {
		name string
		typ  Type
		do   func(s *shortSender)
		want int
	}{
		{"nothing posted", RC, func(*shortSender) {}, 0},
		{"three", RC, func(s *shortSender) { s.postShort(3) }, 3},
		{"budget", RC, func(s *shortSender) { s.postShort(9) }, 5},
		{"no room after two", RC, func(s *shortSender) { s.postShort(4); s.room = 2 }, 2},
		{"a READ behind two", RC, func(s *shortSender) {
			s.postShort(2)
			s.post(OpRead, s.sges(0, 8), nil)
			s.postShort(1)
		}, 2},
		{"a READ first", RC, func(s *shortSender) { s.post(OpRead, s.sges(0, 8), nil); s.postShort(2) }, 0},
		{"UC", UC, func(s *shortSender) { s.postShort(3) }, 0},
		{"the QP's own", RC, func(s *shortSender) { s.postShort(3); s.qp.SQ.At(s.qp.req.cur + 1).own = true }, 1},
		{"capture", RC, func(s *shortSender) { s.postShort(3); s.tx.Tap = quietTap{} }, 0},
		{"over UDP", RC, func(s *shortSender) { s.postShort(3); s.train = 0 }, 0},
		{"SQD", RC, func(s *shortSender) { s.modify(SQD, Attr{}, 0); s.postShort(3) }, 0},
		{"window", RC, func(s *shortSender) { s.qp.SetWindow(2*(3+packetCost), nil); s.postShort(3) }, 2},
	} {
		s := newShortSender(t, c.typ, false)
		s.room, s.train = 1000, 1
		c.do(s)
		if n := s.qp.req.transmitShort(s.now, s.tx, 5); n != c.want || len(s.packets) != c.want {
			t.Errorf("%s: %d, %d packets, want %d", c.name, n, len(s.packets), c.want)
		}
	}
}

// PlaceShort and SentShort leave the same packets, completions and state as Transmit, whatever happened before: losses,
// pauses, full windows, rates, requests of other kinds.
func TestPlaceShortIsTransmit(t *testing.T) {
	used := 0
	for seed := range uint64(120) {
		long, short := newShortSender(t, RC, false), newShortSender(t, RC, true)
		sameSteps(t, seed, long, short)
		used += short.used
	}
	if used < 1000 {
		t.Errorf("PlaceShort has placed %d packets, want thousands", used)
	}
}

// A twin is an end that takes part in sameStep.
type twin interface {
	step(rnd *rand.Rand)
	state() string
	base() *shortSender
}

func (s *shortSender) base() *shortSender { return s }

// sameSteps takes 200 steps, or as many as the QPs stay in RTS for.
func sameSteps(t *testing.T, seed uint64, long, short *shortSender) {
	t.Helper()
	for n := 0; n < 200 && long.qp.State() == RTS; n++ {
		sameStep(t, seed, n, long, short)
	}
}

// sameStep lets both ends do the same at random, and compares their packets, state and completions.
func sameStep(t *testing.T, seed uint64, n int, long, short twin) {
	t.Helper()
	for _, s := range []twin{long, short} {
		s.step(rand.New(rand.NewPCG(seed, uint64(n))))
		s.base().now += 1000
	}
	if got, want := short.base().packets, long.base().packets; !slices.EqualFunc(want, got, bytes.Equal) {
		t.Fatalf("seed %d step %d: packets\n%x\nwant\n%x", seed, n, got, want)
	}
	if got, want := short.state(), long.state(); got != want {
		t.Fatalf("seed %d step %d: state\n%s\nwant\n%s", seed, n, got, want)
	}
	if got, want := short.base().completed(), long.base().completed(); got != want {
		t.Fatalf("seed %d step %d: completions\n%s\nwant\n%s", seed, n, got, want)
	}
}

// completed describes and takes the completions.
func (s *shortSender) completed() (l string) {
	for _, e := range s.cqes {
		l += fmt.Sprintln(e.WRID, e.Status, e.Op, e.Flags, e.Solicited, e.ByteLen, e.Imm, e.QPN, e.SrcQP, e.PKeyIndex, e.Send,
			e.Slot, e.QP == s.qp, e.RQ == s.qp.RQ, e.Tags)
		if e.Send {
			s.qp.SQ.Release(e.Slot)
		} else {
			s.qp.RQ.Release(1)
		}
	}
	s.cqes = s.cqes[:0]
	return l
}

// Only RC QPs in RTS send short requests, and only to a process of the host.
func TestPlaceShortRefuses(t *testing.T) {
	post := func(s *shortSender) { s.postShort(1) }
	for _, c := range []struct {
		name string
		typ  Type
		do   func(s *shortSender)
		want bool
	}{
		{"short", RC, post, true},
		{"nothing posted", RC, func(*shortSender) {}, false},
		{"two", RC, func(s *shortSender) { post(s); post(s) }, false},
		{"UC", UC, post, false},
		{"UD", UD, post, false},
		{"no room", RC, func(s *shortSender) { post(s); s.room = 0 }, false},
		{"SQD", RC, func(s *shortSender) { s.modify(SQD, Attr{}, 0); post(s) }, false},
		{"ERR", RC, func(s *shortSender) { s.modify(Err, Attr{}, 0); post(s) }, false},
		{"acknowledgement first", RC, func(s *shortSender) { post(s); s.qp.resp.ack(4999) }, false},
		{"keep-alive", RC, func(s *shortSender) { s.qp.SetKeepAlive(s.now, 1e9); post(s) }, false},
		{"longer than the MTU", RC, func(s *shortSender) { post(s); s.qp.req.mtu = 2 }, false},
		{"about to fail", RC, func(s *shortSender) { post(s); s.qp.req.bad = &Failure{} }, false},
		{"pause", RC, func(s *shortSender) { post(s); s.qp.pace.until = s.now + 1 }, false},
		{"static rate", RC, func(s *shortSender) { s.qp.path.Rate = 1e9; post(s) }, false},
	} {
		s := newShortSender(t, c.typ, true)
		s.room = 1000
		if c.do(s); s.qp.PlaceShort(s.places) != c.want {
			t.Errorf("%s: %v, want %v", c.name, !c.want, c.want)
		}
		if n := len(s.packets); (n == 1) != c.want {
			t.Errorf("%s: %d packets", c.name, n)
		}
	}
}
