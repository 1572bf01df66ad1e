package iwarp

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// side is one QP with its memory, queues and completions.
type side struct {
	t      testing.TB
	qp     *QP
	table  *mr.Table
	mem    []byte
	reg    *mr.Region
	sq     *transport.SendQueue
	rq     *transport.RecvQueue
	done   []transport.CQE // in order of completion
	events []transport.Event
	moved  bool // the state has changed
}

const (
	testPD   = 7
	testBase = 0x10000
	allowed  = mr.RemoteRead | mr.RemoteWrite | mr.RemoteAtomic
)

func (s *side) Push(e *transport.CQE) {
	if e.Status != transport.Success && !s.moved {
		s.t.Errorf("request %d ended with status %d before the state changed", e.WRID, e.Status)
	}
	s.done = append(s.done, *e)
	if e.Send {
		e.SQ.Release(e.Slot)
	} else {
		e.RQ.Release(1)
	}
}

func (s *side) Raise(ev transport.Event)       { s.events = append(s.events, ev) }
func (s *side) StateChanged(_ transport.State) { s.moved = true }

// newSide makes a QP with a region of size bytes at testBase that permits everything.
func newSide(t testing.TB, p Params, size int) *side {
	s := &side{t: t, table: mr.NewTable(1000, mr.Counted()), mem: make([]byte, size)}
	s.reg = s.region(s.mem, testBase, testPD, mr.LocalWrite|allowed)
	s.sq, s.rq = transport.NewSendQueue(64, 4, 64), transport.NewRecvQueue(64, 4, false, testPD)
	s.open(p, 0)
	return s
}

func (s *side) open(p Params, ulpdu int) {
	s.qp = NewQP(Config{Num: 1, ID: 1, PD: testPD, SQ: s.sq, RQ: s.rq, SendCQ: s, RecvCQ: s, Regions: s.table,
		Access: allowed, MaxULPDU: ulpdu, Host: s}, p)
}

func (s *side) region(b []byte, base uint64, pd uint32, a mr.Access) *mr.Region {
	s.t.Helper()
	r := &mr.Region{PD: pd, Access: a, Base: base, Buf: b}
	if err := s.table.Add(r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// sge names n bytes at offset at of the side's memory.
func (s *side) sge(at, n int) transport.SGE {
	return transport.SGE{Addr: testBase + uint64(at), Length: uint32(n), LKey: s.reg.LKey}
}

func (s *side) recv(id uint64, sges ...transport.SGE) {
	s.t.Helper()
	if err := s.rq.Post(id, sges); err != nil {
		s.t.Fatal(err)
	}
	s.qp.OnPosted()
}

// post posts a send work request. fill sets what is special about it.
func (s *side) post(id uint64, op transport.Op, fill func(*transport.SendWQE), sges ...transport.SGE) {
	s.t.Helper()
	s.sq.Lock()
	w := s.sq.Next()
	if w == nil {
		s.sq.Unlock()
		s.t.Fatal("the send queue is full")
	}
	*w = transport.SendWQE{WRID: id, Op: op, Flags: transport.Signaled, SGEs: append(w.SGEs[:0], sges...),
		Inline: w.Inline}
	s.sq.More(w)
	for _, g := range sges {
		w.Length += g.Length
	}
	if fill != nil {
		fill(w)
	}
	s.sq.Commit()
	s.sq.Publish()
	s.sq.Unlock()
	s.qp.OnPosted()
}

// at returns a fill function that names memory of the peer.
func at(peer *side, off int) func(*transport.SendWQE) {
	return func(w *transport.SendWQE) { w.RemoteAddr, w.RKey = testBase+uint64(off), peer.reg.RKey }
}

// drain takes all that s has to send.
func (s *side) drain() (all []byte) {
	for {
		v := s.qp.Vectors(nil)
		n := 0
		for _, b := range v {
			all = append(all, b...)
			n += len(b)
		}
		if n == 0 {
			return all
		}
		s.qp.Written(n)
	}
}

// move moves bytes from one side to the other as a stream does that takes and gives any number of them.
func move(r *rand.Rand, from, to *side) bool {
	var b []byte
	for _, v := range from.qp.Vectors(nil) {
		b = append(b, v...)
	}
	if len(b) == 0 {
		return false
	}
	b = b[:1+r.IntN(len(b))]
	from.qp.Written(len(b))
	for len(b) > 0 {
		n := 1 + r.IntN(min(len(b), 1+r.IntN(2000)))
		if d := to.qp.Direct(); d != nil && r.IntN(2) == 0 {
			n, _ = mr.Copy(d, b[:n])
			to.qp.Placed(n)
		} else {
			to.qp.Placed(0)
			to.qp.Feed(b[:n])
		}
		b = b[n:]
	}
	return true
}

// settle moves bytes both ways until there are none.
func settle(r *rand.Rand, x, y *side) {
	for moved := true; moved; {
		moved = false
		for _, p := range [][2]*side{{x, y}, {y, x}} {
			if r.IntN(3) > 0 && move(r, p[0], p[1]) {
				moved = true
			}
		}
		if !moved {
			a, b := move(r, x, y), move(r, y, x)
			moved = a || b
		}
	}
}

// pair makes two connected QPs.
func pair(t testing.TB, p Params, size, ulpdu int) (client, server *side) {
	p.Initiator = true
	client = newSide(t, p, size)
	client.open(p, ulpdu)
	p.Initiator = false
	server = newSide(t, p, size)
	server.open(p, ulpdu)
	return client, server
}

// list returns completions as text: ID, status unless it is success, length.
func list(all []transport.CQE) (out []string) {
	for _, e := range all {
		s := fmt.Sprint(e.WRID)
		if e.Status != transport.Success {
			s += fmt.Sprintf(":%d", e.Status)
		}
		out = append(out, s)
	}
	return out
}

// sent returns the Terminate in what a side has sent last, and the number of segments before it.
func sent(t testing.TB, b []byte) (m *iwarp.Terminate, before int) {
	t.Helper()
	for len(b) > 0 {
		f, err := iwarp.ParseFPDU(b)
		if err != nil {
			t.Fatalf("what was sent is not an FPDU: %v", err)
		}
		s := iwarp.Segment(f.ULPDU())
		if c, ok := iwarp.Check(s, len(s)); !ok {
			t.Fatalf("%v: %v", s, c)
		}
		b = b[len(f):]
		if s.Opcode() != iwarp.TerminateOp {
			before++
			continue
		}
		p, err := iwarp.ParseTerminate(s.Payload())
		if err != nil || len(b) > 0 {
			t.Fatalf("%v: %v, %d bytes follow", s, err, len(b))
		}
		return &p, before
	}
	return nil, before
}
