package iwarp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// TestOperations runs each operation once, with and without CRCs, in segments of several lengths, over a stream that
// is split anywhere.
func TestOperations(t *testing.T) {
	for _, crc := range []bool{false, true} {
		for _, ulpdu := range []int{Shortest, 1500, 0} {
			t.Run(fmt.Sprintf("crc=%v/ulpdu=%d", crc, ulpdu), func(t *testing.T) {
				for seed := range uint64(5) {
					operations(t, seed, Params{CRC: crc, IRD: 2, ORD: 2}, ulpdu)
				}
			})
		}
	}
}

func operations(t *testing.T, seed uint64, p Params, ulpdu int) {
	r := rand.New(rand.NewPCG(seed, 1))
	c, s := pair(t, p, 100000, ulpdu)
	for i := range c.mem {
		c.mem[i], s.mem[i] = byte(i*7), byte(i*11)
	}
	for i := range uint64(6) {
		s.recv(100+i, s.sge(1000+int(i)*300, 100), s.sge(1100+int(i)*300, 200))
	}
	mem := bytes.Clone(s.mem)
	c.post(1, transport.OpSend, nil, c.sge(0, 100), c.sge(500, 151))
	c.post(2, transport.OpWrite, at(s, 20000), c.sge(0, 30000))
	c.post(3, transport.OpRead, at(s, 60000), c.sge(50000, 20001))
	c.post(4, transport.OpSend, func(w *transport.SendWQE) { w.Flags |= transport.Solicited })
	c.post(5, transport.OpWriteImm, func(w *transport.SendWQE) { at(s, 90000)(w); w.Imm = 0xABCD }, c.sge(7, 3))
	put(s.mem[95000:], 40)
	c.post(6, transport.OpFetchAdd, func(w *transport.SendWQE) { at(s, 95000)(w); w.CompareAdd = 2 }, c.sge(96000, 8))
	c.post(7, transport.OpCmpSwap, func(w *transport.SendWQE) {
		at(s, 95000)(w)
		w.CompareAdd, w.Swap = 42, 99
	}, c.sge(96008, 8))
	c.post(8, transport.OpSend, func(w *transport.SendWQE) {
		w.Flags |= transport.Inline
		w.Inline = append(w.Inline, "inline"...)
		w.Length = 6
	})
	c.post(9, transport.OpRead, at(s, 0))
	settle(r, c, s)
	if got, want := fmt.Sprint(list(c.done)), "[1 2 3 4 5 6 7 8 9]"; got != want {
		t.Fatalf("seed %d: completions %s, want %s", seed, got, want)
	}
	checkReceives(t, s, mem, c)
	copy(mem[20000:], c.mem[:30000])
	copy(mem[90000:], c.mem[7:10])
	put(mem[95000:], 99)
	if i := differs(s.mem, mem); i >= 0 {
		t.Errorf("seed %d: the server's memory differs at %d", seed, i)
	}
	if !bytes.Equal(c.mem[50000:70001], s.mem[60000:80001]) {
		t.Errorf("seed %d: the READ has brought other bytes", seed)
	}
	if a, b := mr.Load(c.mem[96000:]), mr.Load(c.mem[96008:]); a != 40 || b != 42 {
		t.Errorf("seed %d: the atomics have found %d and %d", seed, a, b)
	}
}

func put(b []byte, v uint64) { mr.Store(b[:8], v) }

func differs(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}

// checkReceives checks the server's completions, and writes to mem what the SENDs have brought.
func checkReceives(t *testing.T, s *side, mem []byte, c *side) {
	t.Helper()
	type done struct {
		id       uint64
		op       transport.CQOp
		n, imm   uint32
		se, with bool
	}
	var got []done
	for _, e := range s.done {
		got = append(got, done{e.WRID, e.Op, e.ByteLen, e.Imm, e.Solicited, e.Flags&transport.WithImm != 0})
	}
	if want := []done{{100, transport.CQRecv, 251, 0, false, false}, {101, transport.CQRecv, 0, 0, true, false},
		{102, transport.CQRecvRDMAImm, 3, 0xABCD, false, true}, {103, transport.CQRecv, 6, 0, false, false},
	}; !slices.Equal(got, want) {
		t.Errorf("receives %v, want %v", got, want)
	}
	msg := append(bytes.Clone(c.mem[:100]), c.mem[500:651]...)
	copy(mem[1000:], msg)
	copy(mem[1900:], "inline")
}

// TestI_DDP_07_RandomPrograms runs random work requests both ways at once. The memory of both sides and the order of
// all completions must be what a model says.
func TestI_DDP_07_RandomPrograms(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		p := Params{CRC: seed%2 == 1, IRD: 1 + int(seed%4), ORD: 1 + int(seed%4)}
		if seed%3 == 0 {
			p.RTR = []iwarp.RTR{iwarp.RTRSend, iwarp.RTRWrite, iwarp.RTRRead}[seed/3%3]
		}
		c, s := pair(t, p, 1<<16, []int{Shortest, 200, 1444, 9000, 0}[seed%5])
		m := newModel(r, c, s)
		for range 300 { // each slot of the send queues is used several times
			m.step(p)
			if r.IntN(4) == 0 {
				move(r, c, s)
				move(r, s, c)
			}
		}
		if p.RTR == 0 && len(m.x[0].want) == 0 { // a responder may not send first
			m.write(0)
		}
		settle(r, c, s)
		m.check(t, seed)
	}
}

// model predicts the effect of a random program. Each half of each memory is used in one direction: the lower half of
// the server by the client's work requests, and so on, so that the result does not depend on the interleaving.
type model struct {
	r *rand.Rand
	x [2]struct {
		me, peer  *side
		want      []string // completions of the send queue
		wantRecv  []string
		mem, from []byte // expected: the lower half of the peer, the upper half of me
		recvs     uint64
		id        uint64
		window    mr.Binding // a window of type 2
		bound     bool       // it is to be bound in the end
	}
}

const half = 1 << 15

func newModel(r *rand.Rand, c, s *side) *model {
	m := &model{r: r}
	m.x[0].me, m.x[0].peer, m.x[1].me, m.x[1].peer = c, s, s, c
	for i := range m.x {
		x := &m.x[i]
		for k := range x.me.mem {
			x.me.mem[k] = byte(r.IntN(256))
		}
		w := &mr.Window{PD: testPD, Type: mr.Type2}
		if err := x.me.table.AddWindow(w); err != nil {
			x.me.t.Fatal(err)
		}
		of := x.me.region(make([]byte, 64), testBase, testPD, mr.LocalWrite|mr.MWBind)
		x.window = mr.Binding{Window: w, RKey: x.me.table.Key(w), LKey: of.LKey, Access: mr.RemoteWrite, Addr: testBase,
			Length: 64}
	}
	for i := range m.x {
		m.x[i].mem = bytes.Clone(m.x[i].peer.mem[:half/2])
		m.x[i].from = bytes.Clone(m.x[i].me.mem[half:])
	}
	return m
}

// step posts a random work request at one side. WRITEs and SENDs go from the second quarter of one side to the first
// quarter of the other, READs from its third or fourth quarter, which nobody changes, to an upper half.
func (m *model) step(p Params) {
	i := m.r.IntN(2)
	if m.outstanding(i) > 20 {
		return
	}
	switch m.r.IntN(5) {
	case 0:
		m.write(i)
	case 1:
		m.send(i)
	case 2:
		m.turn(i)
	default:
		m.read(i)
	}
}

// outstanding returns the number of a side's work requests without a completion.
func (m *model) outstanding(i int) int {
	n := len(m.x[i].want)
	for _, e := range m.x[i].me.done {
		if e.Send {
			n--
		}
	}
	return n
}

// turn binds the window of a side, or invalidates it.
func (m *model) turn(i int) {
	x := &m.x[i]
	x.bound = !x.bound
	if x.bound {
		x.me.post(x.id, transport.OpBindMW, func(w *transport.SendWQE) {
			w.SendMore = &transport.SendMore{Bind: x.window}
		})
	} else {
		x.me.post(x.id, transport.OpLocalInv, func(w *transport.SendWQE) { w.Imm = x.window.RKey })
	}
	x.want = append(x.want, fmt.Sprint(x.id))
	x.id++
}

func (m *model) write(i int) {
	x := &m.x[i]
	n := m.r.IntN(half / 8)
	src, dst := half/2+m.r.IntN(half/2-n), m.r.IntN(half/2-n)
	copy(x.mem[dst:], x.me.mem[src:src+n])
	x.me.post(x.id, transport.OpWrite, at(x.peer, dst), x.me.sge(src, n))
	x.want = append(x.want, fmt.Sprint(x.id))
	x.id++
}

func (m *model) send(i int) {
	x := &m.x[i]
	n := m.r.IntN(half / 8)
	src, dst := half/2+m.r.IntN(half/2-n), m.r.IntN(half/2-n)
	copy(x.mem[dst:], x.me.mem[src:src+n])
	x.peer.recv(1000+x.recvs, x.peer.sge(dst, n/3), x.peer.sge(dst+n/3, 0), x.peer.sge(dst+n/3, n-n/3))
	x.wantRecv = append(x.wantRecv, fmt.Sprint(1000+x.recvs))
	x.recvs++
	x.me.post(x.id, transport.OpSend, nil, x.me.sge(src, n/2), x.me.sge(src+n/2, n-n/2))
	x.want = append(x.want, fmt.Sprint(x.id))
	x.id++
}

// read reads what the peer's upper half holds at the start into the upper half. Since READs of both sides would
// depend on each other, only the client reads.
func (m *model) read(i int) {
	x := &m.x[0]
	if i != 0 {
		return
	}
	n := m.r.IntN(half / 8)
	src, dst := m.r.IntN(half-n), m.r.IntN(half-n)
	copy(x.from[dst:], x.peer.mem[half+src:half+src+n])
	x.me.post(x.id, transport.OpRead, at(x.peer, half+src), x.me.sge(half+dst, n))
	x.want = append(x.want, fmt.Sprint(x.id))
	x.id++
}

func (m *model) check(t *testing.T, seed uint64) {
	t.Helper()
	for i := range m.x {
		x := &m.x[i]
		var sends, recvs []transport.CQE
		for _, e := range x.me.done {
			if e.Send {
				sends = append(sends, e)
			}
		}
		for _, e := range x.peer.done {
			if !e.Send {
				recvs = append(recvs, e)
			}
		}
		if got := list(sends); !slices.Equal(got, x.want) {
			t.Fatalf("seed %d, side %d: completions\n%v, want\n%v", seed, i, got, x.want)
		}
		if got := list(recvs); !slices.Equal(got, x.wantRecv) {
			t.Fatalf("seed %d, side %d: receives\n%v, want\n%v", seed, i, got, x.wantRecv)
		}
		if k := differs(x.mem, x.peer.mem[:half/2]); k >= 0 {
			t.Fatalf("seed %d, side %d: the peer's memory differs at %d", seed, i, k)
		}
		if k := differs(x.from, x.me.mem[half:]); k >= 0 {
			t.Fatalf("seed %d, side %d: what was read differs at %d", seed, i, k)
		}
		if err := x.me.table.CheckKey(x.window.RKey, testPD, 1, mr.RemoteWrite); (err == nil) != x.bound {
			t.Fatalf("seed %d, side %d: the window is to be bound: %v, its key gives %v", seed, i, x.bound, err)
		}
	}
}

// TestI_MPA_02_ResponderWaits checks that a responder sends nothing before the initiator has.
func TestI_MPA_02_ResponderWaits(t *testing.T) {
	for _, rtr := range []iwarp.RTR{0, iwarp.RTRSend, iwarp.RTRWrite, iwarp.RTRRead} {
		c, s := pair(t, Params{RTR: rtr}, 100, 0)
		c.recv(5, c.sge(0, 10))
		s.recv(6, s.sge(0, 10))
		s.post(1, transport.OpSend, nil, s.sge(0, 3))
		if b := s.drain(); len(b) > 0 {
			t.Fatalf("%d: the responder sends %x first", rtr, b)
		}
		if rtr == 0 {
			c.post(2, transport.OpSend, nil, c.sge(20, 3))
		}
		r := rand.New(rand.NewPCG(1, uint64(rtr)))
		settle(r, c, s)
		want := "[5]"
		if rtr == 0 {
			want = "[2 5]"
		}
		if got := fmt.Sprint(list(c.done)); got != want {
			t.Errorf("%d: completions of the initiator %s, want %s", rtr, got, want)
		}
		if got := len(s.done); rtr != 0 && got != 1 {
			t.Errorf("%d: the first message has completed a receive: %v", rtr, list(s.done))
		}
	}
}

// TestI_MPA_02_Release checks that a responder may be released from its wait, but not if the initiator has a message to
// send by itself.
func TestI_MPA_02_Release(t *testing.T) {
	for _, rtr := range []iwarp.RTR{0, iwarp.RTRSend, iwarp.RTRWrite, iwarp.RTRRead} {
		c, s := pair(t, Params{RTR: rtr}, 100, 0)
		c.recv(5, c.sge(0, 10))
		s.post(1, transport.OpSend, nil, s.sge(0, 3))
		if c.qp.Release() {
			t.Errorf("%d: an initiator waits", rtr)
		}
		if got := s.qp.Release(); got != (rtr == 0) {
			t.Errorf("%d: the responder is released: %v", rtr, got)
		}
		if b := s.drain(); (len(b) > 0) != (rtr == 0) {
			t.Errorf("%d: a released responder sends %x", rtr, b)
		} else if c.qp.Feed(b); len(b) > 0 && len(c.done) != 1 {
			t.Errorf("%d: the initiator has %v", rtr, list(c.done))
		}
	}
}

// TestI_DDP_04_ORD checks that no more READs are outstanding than agreed, and that a responder refuses one too many.
func TestI_DDP_04_ORD(t *testing.T) {
	c, s := pair(t, Params{IRD: 2, ORD: 2}, 1000, 0)
	for i := range 5 {
		c.post(uint64(i), transport.OpRead, at(s, 0), c.sge(100*i, 10))
	}
	s.qp.Feed(c.drain())
	if len(c.qp.waiting) != 2 || s.qp.asked != 2 {
		t.Errorf("%d READs are outstanding, %d have arrived, want 2", len(c.qp.waiting), s.qp.asked)
	}
	c.qp.par.ORD = 3
	s.qp.Feed(c.drain())
	m, _ := sent(t, s.drain())
	if m == nil || m.Code != iwarp.NoBuffer || m.DDP == nil {
		t.Errorf("one READ too many: %+v", m)
	}
	none, _ := pair(t, Params{}, 1000, 0)
	none.post(1, transport.OpRead, nil, none.sge(0, 1))
	none.drain()
	if got := fmt.Sprint(list(none.done)); got != fmt.Sprintf("[1:%d]", transport.LocQPOpErr) {
		t.Errorf("a READ without initiator depth: %s", got)
	}
}

// TestFence checks that a fenced work request waits for the READs before it.
func TestFence(t *testing.T) {
	c, s := pair(t, Params{IRD: 4, ORD: 4}, 1000, 0)
	s.recv(9, s.sge(0, 10))
	c.post(1, transport.OpRead, at(s, 0), c.sge(0, 10))
	c.post(2, transport.OpSend, func(w *transport.SendWQE) { w.Flags |= transport.Fence }, c.sge(0, 10))
	b := c.drain()
	if n := iwarp.FPDULen(46); len(b) != n {
		t.Errorf("%d bytes are sent before the READ is answered, want %d", len(b), n)
	}
	s.qp.Feed(b)
	settle(rand.New(rand.NewPCG(1, 1)), c, s)
	if got := fmt.Sprint(list(c.done), list(s.done)); got != "[1 2] [9]" {
		t.Errorf("completions %s", got)
	}
}

// TestCompletionOfWrite checks that a WRITE completes when the stream has taken all of it, not before, and in order
// with READs.
func TestCompletionOfWrite(t *testing.T) {
	c, s := pair(t, Params{IRD: 4, ORD: 4}, 1<<20, 5000)
	c.post(1, transport.OpWrite, at(s, 0), c.sge(0, 100000))
	n := 0
	for len(c.done) == 0 {
		total := 0
		for _, b := range c.qp.Vectors(nil) {
			total += len(b)
		}
		if total == 0 {
			t.Fatal("nothing to send, but the WRITE is not complete")
		}
		k := min(total, 777)
		c.qp.Written(k)
		n += k
	}
	if n < 100000 {
		t.Errorf("the WRITE completes after %d bytes", n)
	}
	c.post(2, transport.OpRead, at(s, 0), c.sge(0, 1))
	c.post(3, transport.OpWrite, at(s, 0), c.sge(0, 1))
	c.drain()
	if len(c.done) != 1 {
		t.Errorf("a WRITE has completed before the READ posted before it: %v", list(c.done))
	}
}

// TestI_CLOSE_01_Disconnect checks that what is posted is sent before the stream may be closed.
func TestI_CLOSE_01_Disconnect(t *testing.T) {
	c, s := pair(t, Params{IRD: 4, ORD: 4}, 1000, 0)
	s.recv(9, s.sge(0, 10))
	s.recv(10, s.sge(0, 10))
	c.recv(11, c.sge(0, 10))
	c.post(1, transport.OpRead, at(s, 0), c.sge(0, 10))
	c.post(2, transport.OpSend, nil, c.sge(0, 10))
	c.qp.Disconnect()
	if c.qp.Finished() {
		t.Error("the stream may be closed before what is posted is sent")
	}
	settle(rand.New(rand.NewPCG(1, 1)), c, s)
	if !c.qp.Finished() || s.qp.Finished() {
		t.Error("the stream cannot be closed although all is sent")
	}
	s.qp.OnEOF()
	c.qp.OnEOF()
	if got, want := fmt.Sprint(list(c.done), list(s.done)), "[1 2 11:5] [9 10:5]"; got != want {
		t.Errorf("completions %s, want %s", got, want)
	}
	s.recv(12)
	s.post(13, transport.OpSend, nil)
	if got, want := fmt.Sprint(list(s.done)), "[9 10:5 12:5 13:5]"; got != want {
		t.Errorf("completions %s, want %s", got, want)
	}
}

// TestLocalOperationsInAUsedSlot checks that BIND_MW and LOCAL_INV are executed in slots of the send queue that other
// requests have used before.
func TestLocalOperationsInAUsedSlot(t *testing.T) {
	c, s := pair(t, Params{IRD: 1, ORD: 1}, 1000, 0)
	r := c.region(make([]byte, 64), testBase, testPD, mr.LocalWrite|mr.MWBind)
	w := &mr.Window{PD: testPD, Type: mr.Type2}
	if err := c.table.AddWindow(w); err != nil {
		t.Fatal(err)
	}
	key := c.table.Key(w)
	for i := range c.sq.Cap() {
		c.post(uint64(i), transport.OpWrite, at(s, 0), c.sge(0, 1))
		c.drain()
	}
	c.post(100, transport.OpBindMW, func(q *transport.SendWQE) {
		q.SendMore = &transport.SendMore{Bind: mr.Binding{
			Window: w, RKey: key, LKey: r.LKey, Access: mr.RemoteWrite, Addr: testBase, Length: 64}}
	})
	c.drain()
	if err := c.table.CheckKey(key, testPD, 1, mr.RemoteWrite); err != nil {
		t.Errorf("after BIND_MW: %v", err)
	}
	for i := range c.sq.Cap() - 1 {
		c.post(uint64(i), transport.OpWrite, at(s, 0), c.sge(0, 1))
		c.drain()
	}
	c.post(101, transport.OpWrite, at(s, 0), c.sge(0, 1))
	c.post(102, transport.OpLocalInv, func(q *transport.SendWQE) { q.Imm = key })
	c.drain()
	if err := c.table.CheckKey(key, testPD, 1, mr.RemoteWrite); !errors.Is(err, mr.ErrKey) {
		t.Errorf("after LOCAL_INV: %v, want %v", err, mr.ErrKey)
	}
}
