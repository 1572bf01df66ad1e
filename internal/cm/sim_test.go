package cm

import (
	"bytes"
	"container/heap"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

var (
	oneSeed = flag.Int64("cm.seed", -1, "play this seed only")
	nSeeds  = flag.Int("cm.seeds", 2000, "how many seeds to play")
)

// TestSimCalm: correct programs, over a network that loses, duplicates and reorders for a while. Every connection is
// made or refused as the program decided, both ends agree about it, and it ends in order.
func TestSimCalm(t *testing.T) { simulate(t, calm) }

// TestSimChaos: programs that reject and destroy at any moment, replayed and damaged datagrams, delays beyond the
// packet life time. The only guarantee is that everything ends and nothing is left.
func TestSimChaos(t *testing.T) { simulate(t, chaos) }

// TestSimDead: a network that loses everything from some moment on. Every wait ends.
func TestSimDead(t *testing.T) { simulate(t, dead) }

type mode int

const (
	calm mode = iota
	chaos
	dead
)

func simulate(t *testing.T, mode mode) {
	if *oneSeed >= 0 {
		w := newWorld(t, mode, *oneSeed)
		w.verbose = testing.Verbose()
		w.run()
		return
	}
	n := *nSeeds
	if testing.Short() {
		n /= 10
	}
	sum := map[string]int{}
	for seed := range int64(n) {
		w := newWorld(t, mode, seed)
		w.run()
		for k, v := range w.outcomes {
			sum[k] += v
		}
		if t.Failed() {
			t.Fatalf("again with: go test ./internal/cm -run %s -cm.seed=%d -v", t.Name(), seed)
		}
	}
	t.Logf("%v", sum)
}

// world is two devices, a network and the programs on them, in virtual time.
type world struct {
	t        *testing.T
	mode     mode
	seed     int64
	rng      *rand.Rand
	now      int64
	agenda   agenda
	order    int
	verbose  bool
	hosts    [2]*host
	faulty   int64 // until then
	loss     float64
	dup      float64
	delay    int64 // at most
	history  []letter
	conns    []*conn
	outcomes map[string]int
}

type letter struct {
	src, dst netip.Addr
	mad      [wire.MADLen]byte
}

// host is a device with its machine and listeners.
type host struct {
	w        *world
	addr     netip.Addr
	m        *Machine
	backlogs []*Backlog
	timer    int64 // the deadline that stands in the agenda
	nextQPN  uint32
}

// conn is a program's record of one end.
type conn struct {
	h           *host
	id          *ID
	peer        *conn // the passive end that the first REQ of this end made, and the other way round
	name        string
	private     []byte
	refuse      cmmsg.Reason // the passive end's decision: refuse
	outcome     string       // "", established, rejected, unreachable, gone
	late        bool         // the passive end waited in vain for the RTU
	established int
	ended       int // events that end a connection
	exits       int
	closing     bool // this end has begun to disconnect
	attrs       Attrs
	answered    []byte // private data that came with the answer
}

type appointment struct {
	at    int64
	order int
	do    func()
}

type agenda []appointment

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].order < a[j].order
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(appointment)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

const second = int64(time.Second)

var (
	simTCP = cmmsg.PSTCP.Service(7174)
	simUDP = cmmsg.PSUDP.Service(7174)
)

func newWorld(t *testing.T, mode mode, seed int64) *world {
	w := &world{t: t, mode: mode, seed: seed, rng: rand.New(rand.NewPCG(uint64(seed), 4)), outcomes: map[string]int{}}
	w.faulty = int64(w.rng.IntN(25)) * second
	w.loss, w.dup, w.delay = w.rng.Float64()*0.5, w.rng.Float64()*0.5, 100*millisecond
	switch mode {
	case chaos:
		w.delay = int64(w.rng.IntN(5000)+1) * millisecond
	case dead:
		w.faulty = Never
		w.loss = 0
	}
	for i, a := range []string{"10.0.0.1", "10.0.0.2"} {
		var key [32]byte
		key[0], key[1] = byte(seed), byte(seed>>8)
		key[2] = byte(i)
		h := &host{w: w, addr: netip.MustParseAddr(a), timer: Never, nextQPN: uint32(0x100 * (i + 1))}
		h.m = New(Config{GUID: uint64(i + 1), Seed: key, AckDelay: 15})
		h.m.guard.now = func() int64 { return w.now }
		h.m.guard.stray.full.Store(Never - strayAnswerBurst*second) // no message passes for want of a limit
		for _, p := range []ListenParams{{Service: simTCP}, {Service: simUDP, UD: true}} {
			p.Backlog = NewBacklog(w.rng.IntN(4) + 1)
			h.backlogs = append(h.backlogs, p.Backlog)
			if _, err := h.m.Listen(0, p, new(Batch)); err != nil {
				t.Fatal(err)
			}
		}
		w.hosts[i] = h
	}
	return w
}

func (w *world) at(t int64, do func()) {
	w.order++
	heap.Push(&w.agenda, appointment{t, w.order, do})
}

func (w *world) in(d int64, do func()) { w.at(w.now+d, do) }

// random is a time below limit.
func (w *world) random(limit int64) int64 { return w.rng.Int64N(limit) }

func (w *world) logf(format string, args ...any) {
	if w.verbose {
		w.t.Logf("%9.3f %s", float64(w.now)/1e9, fmt.Sprintf(format, args...))
	}
}

func (w *world) run() {
	for range w.rng.IntN(6) + 2 {
		h := w.hosts[w.rng.IntN(2)]
		to := w.hosts[w.rng.IntN(2)] // itself, at times
		if w.rng.IntN(4) == 0 {
			w.at(w.random(5*second), func() { h.lookup(to) })
		} else {
			w.at(w.random(5*second), func() { h.connect(to) })
		}
	}
	if w.mode == dead {
		w.at(w.random(6*second), func() { w.loss = 1 })
	}
	// In the end programs close whatever they still have.
	w.at(400*second, func() {
		for _, c := range w.conns {
			c.destroy()
		}
	})
	for steps := 0; len(w.agenda) > 0; steps++ {
		if steps > 100_000 {
			w.t.Fatalf("seed %d: no end", w.seed)
		}
		a := heap.Pop(&w.agenda).(appointment)
		w.now = a.at
		a.do()
	}
	w.check()
}

// post passes on a batch: mail to the network, events to the programs, and the deadline to the agenda.
func (h *host) post(out *Batch) {
	w := h.w
	for i := range out.Mail {
		mail := &out.Mail[i]
		w.logf("%v > %v %v", mail.Path.Src, mail.Path.Dst, cmmsg.Msg(mail.MAD[:]))
		w.send(letter{mail.Path.Src, mail.Path.Dst, mail.MAD})
	}
	for _, e := range out.Events {
		w.logf("%v event %v, %v", h.addr, e.Type, e.ID.State())
		h.handle(e)
	}
	if d := h.m.NextDeadline(); d < h.timer {
		h.timer = d
		w.at(d, h.tick)
	}
}

func (h *host) tick() {
	if h.timer > h.w.now {
		return // an earlier appointment, kept already
	}
	h.timer = Never
	var out Batch
	h.m.OnTimer(h.w.now, &out)
	h.post(&out)
}

// send puts a letter on the network.
func (w *world) send(l letter) {
	w.history = append(w.history, l)
	copies := 1
	if w.now < w.faulty {
		if w.rng.Float64() < w.loss {
			copies--
		}
		if w.rng.Float64() < w.dup && w.mode != dead {
			copies++
		}
	}
	if w.mode == chaos && w.now < w.faulty && w.rng.IntN(10) == 0 {
		w.in(w.random(30*second), func() { w.deliver(w.history[w.rng.IntN(len(w.history))]) })
	}
	for range copies {
		w.in(1000+w.random(w.delay), func() { w.deliver(l) })
	}
}

func (w *world) deliver(l letter) {
	mad := l.mad[:]
	if w.mode == chaos && w.now < w.faulty && w.rng.IntN(50) == 0 {
		mad[w.rng.IntN(len(mad))] ^= 1 << w.rng.IntN(8)
		mad = mad[:len(mad)-w.rng.IntN(2)]
	}
	for _, h := range w.hosts {
		if h.addr == l.dst {
			var out Batch
			if h.m.Wants(l.src, mad) && h.m.Guard().Drop(mad) {
				w.t.Fatalf("seed %d: the guard drops a message about a connection that exists", w.seed)
			}
			h.m.OnMAD(w.now, 0, l.src, l.dst, mad, &out)
			h.post(&out)
		}
	}
}

func (h *host) newConn(name string) *conn {
	c := &conn{h: h, name: fmt.Sprintf("%s %d", name, len(h.w.conns))}
	h.w.conns = append(h.w.conns, c)
	return c
}

func (h *host) qpn() uint32 {
	h.nextQPN++
	return h.nextQPN
}

func (h *host) pathTo(to *host) Path {
	return Path{Path: link.Path{Src: h.addr, Dst: to.addr, HopLimit: 64}, MTU: 3}
}

func (h *host) connect(to *host) {
	c := h.newConn("active")
	c.id = h.m.NewID(c)
	c.private = cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(h.addr, 4000), to.addr)
	c.private = append(c.private, fmt.Sprintf("from %s", c.name)...)
	var out Batch
	err := h.m.Connect(h.w.now, c.id, &ConnectParams{
		Service: simTCP, Path: h.pathTo(to), QPN: h.qpn(), ResponderResources: uint8(h.w.rng.IntN(16)),
		InitiatorDepth: uint8(h.w.rng.IntN(16)),
		RetryCount:     7, RNRRetry: uint8(h.w.rng.IntN(8)), Private: c.private,
	}, &out)
	if err != nil {
		h.w.t.Fatal(err)
	}
	h.post(&out)
	if h.w.mode == chaos && h.w.rng.IntN(6) == 0 {
		h.w.in(h.w.random(20*second), c.destroy)
	}
}

func (h *host) lookup(to *host) {
	c := h.newConn("look-up")
	c.id = h.m.NewID(c)
	var out Batch
	private := cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(h.addr, 4000), to.addr)
	if err := h.m.Lookup(h.w.now, c.id, &LookupParams{Service: simUDP, Path: h.pathTo(to), Private: private},
		&out); err != nil {
		h.w.t.Fatal(err)
	}
	h.post(&out)
}

// wrong reports a violation.
func (c *conn) wrong(format string, args ...any) {
	c.h.w.t.Errorf("seed %d, %.3f s, %s at %v: %s", c.h.w.seed, float64(c.h.w.now)/1e9, c.name, c.h.addr,
		fmt.Sprintf(format, args...))
}

// decide ends the attempt to connect.
func (c *conn) decide(outcome string) {
	if c.outcome != "" {
		c.wrong("%s after %s", outcome, c.outcome)
	}
	c.outcome = outcome
	c.h.w.outcomes[outcome]++
}

func (c *conn) destroy() {
	var out Batch
	c.h.m.Destroy(c.h.w.now, c.id, &out)
	if c.outcome == "" {
		c.decide("gone")
	}
	c.h.post(&out)
}

// call makes a call at a machine; it may come too late, except in calm.
func (c *conn) call(name string, f func(m *Machine, now int64, out *Batch) error) {
	var out Batch
	err := f(c.h.m, c.h.w.now, &out)
	c.h.w.logf("%v %s: %s: %v", c.h.addr, c.name, name, err)
	if err != nil && c.h.w.mode == calm {
		c.wrong("%v", err)
	}
	c.h.post(&out)
}

// agree compares both ends of an established connection.
func agree(t *testing.T, a, p *conn) {
	x, y := a.attrs, p.attrs
	if a.id.localQPN != y.DestQPN || p.id.localQPN != x.DestQPN || x.RQPSN != y.SQPSN || x.SQPSN != y.RQPSN ||
		x.MTU != y.MTU ||
		x.MaxRdAtomic != y.MaxDestRdAtomic || x.MaxDestRdAtomic != y.MaxRdAtomic || x.RetryCount != y.RetryCount ||
		a.id.remoteID != p.id.localID || p.id.remoteID != a.id.localID {
		t.Errorf("%s has %+v, %s has %+v", a.name, x, p.name, y)
	}
}

// check runs at the end, when nothing can happen any more.
func (w *world) check() {
	for _, h := range w.hosts {
		checkEmpty(w.t, h.m)
		for _, b := range h.backlogs {
			if b.Used() != 0 {
				w.t.Errorf("seed %d: %d places of a backlog are lost", w.seed, b.Used())
			}
		}
	}
	for _, c := range w.conns {
		if c.outcome == "" {
			c.wrong("no outcome")
		}
		if c.established > 1 || c.ended > c.established || c.exits > 1 {
			c.wrong("established %d times, ended %d times, left timewait %d times", c.established, c.ended, c.exits)
		}
		if w.mode == calm {
			c.checkCalm()
		}
	}
}

// checkCalm: the decisions of the programs are the results, at both ends.
func (c *conn) checkCalm() {
	p := c.peer
	switch {
	case c.late:
		c.h.w.outcomes["late"]++
	case c.outcome == "unreachable" || c.outcome == "gone":
		c.wrong("%s", c.outcome)
	case c.outcome == "rejected" && c.id.active:
		if p == nil || p.refuse == 0 || !bytes.HasPrefix(c.answered, p.private) {
			c.wrong("rejected with %q", bytes.TrimRight(c.answered, "\x00"))
		}
	case c.outcome == "established":
		if p == nil || p.outcome != "established" {
			c.wrong("established, but not the peer")
			return
		}
		if c.ended != 1 || c.exits != 1 {
			c.wrong("ended %d times, left timewait %d times", c.ended, c.exits)
		}
		if c.id.active {
			agree(c.h.w.t, c, p)
			if !bytes.HasPrefix(c.answered, p.private) {
				c.wrong("accepted with %q", bytes.TrimRight(c.answered, "\x00"))
			}
		}
	}
}
