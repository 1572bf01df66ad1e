package cm

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/board"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// script makes a stage and performs commands.
func script(t *testing.T, lines ...string) *stage {
	t.Helper()
	s := newStage(t)
	s.run(lines...)
	return s
}

func (s *stage) run(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		if err := s.do(words[0], parseArgs(words[1:])); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
	}
}

// A notice may have several deaths and silences. Each connection gets the event of its own, whatever its QP's number.
func TestSeveralDeaths(t *testing.T) {
	p := newPair(t)
	for range 3 {
		p.connect(t)
	}
	deaths := []Death{
		{Peer: hereAddr, RemoteQPN: 1, LocalQPN: 2, Silent: true}, {Peer: hereAddr, RemoteQPN: 3, LocalQPN: 4},
		{Peer: hereAddr, RemoteQPN: 5, LocalQPN: 7}, {Peer: hereAddr, RemoteQPN: 0, LocalQPN: 0},
	}
	var out Batch
	p.b.OnDeath(p.now, deaths, &out)
	got := map[*ID]EventType{}
	for _, ev := range out.Events {
		got[ev.ID] = ev.Type
	}
	if len(out.Events) != 2 || got[p.accepted[0]] != EventSilent || got[p.accepted[1]] != EventDREQ {
		t.Errorf("%+v", out.Events)
	}
	if n := p.b.Counters.Deaths; n != 1 || p.accepted[0].State() != StateEstablished {
		t.Errorf("%d deaths, the silent peer's connection is %v", n, p.accepted[0].State())
	}
	id := p.a.NewID(nil) // no reply has come: there is no QP of a peer yet
	path := Path{MTU: 3}
	path.Src, path.Dst = hereAddr, thereAddr
	if err := p.a.Connect(p.now, id, &ConnectParams{Service: simTCP, Path: path, QPN: 99}, &out); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	p.a.OnDeath(p.now, []Death{{Peer: thereAddr}, {Peer: thereAddr, LocalQPN: 99}}, &out)
	if len(out.Events) != 0 || id.State() != StateREQSent {
		t.Errorf("%+v, %v", out.Events, id.State())
	}
}

// The time for the RTU of a peer that has died begins with the first notice.
func TestDeathIsNoticedTwice(t *testing.T) {
	s := script(t, "listen l", "in REQ as=i", "accept i qp=22", "death qp=33 ours=22", "time 900ms", "death qp=33 ours=22",
		"time 99ms")
	if id := s.ids["i"]; id.State() != StateREPSent {
		t.Errorf("%v before the end", id.State())
	}
	s.run("time 1ms")
	if id := s.ids["i"]; id.State() != StateIdle {
		t.Errorf("%v at the end", id.State())
	}
}

// The answer to a DREQ that crosses ours has no private data, and not that of the RTU.
func TestCrossedDREQs(t *testing.T) {
	s := script(t, "connect i", "in REP", "establish i private=ABCD", "disconnect i", "in DREQ qp=11")
	answers := 0
	for mad := range s.sent {
		if msg := cmmsg.Msg(mad[:]); msg.Kind() == cmmsg.KindDREP {
			answers++
			if slices.ContainsFunc(msg.Private(), func(b byte) bool { return b != 0 }) {
				t.Errorf("private data % x", msg.Private())
			}
		}
	}
	if answers != 1 {
		t.Errorf("%d answers", answers)
	}
}

// Nor has the answer to a DREQ that comes in TIMEWAIT: the peer may not have got ours.
func TestAnswersInTimewait(t *testing.T) {
	for _, end := range []string{"disconnect i;in DREP", "destroy i", "in REJ about=other"} {
		s := script(t, "connect i life=24", "in REP", "establish i private=ABCD")
		s.run(strings.Split(end, ";")...)
		s.run("in DREQ qp=11")
		answers := 0
		for mad := range s.sent {
			if msg := cmmsg.Msg(mad[:]); msg.Kind() == cmmsg.KindDREP {
				answers++
				if slices.ContainsFunc(msg.Private(), func(b byte) bool { return b != 0 }) {
					t.Errorf("%s: private data % x", end, msg.Private()[:8])
				}
			}
		}
		if answers != 1 {
			t.Errorf("%s: %d answers", end, answers)
		}
	}
}

// A REJ because of a time-out names the peer's own number: it passes if that is known. Others do not.
func TestGuardAndRejections(t *testing.T) {
	m := New(Config{Seed: [32]byte{1}})
	now := int64(time.Hour)
	m.guard.now = func() int64 { return now }
	id := &ID{remoteGUID: 0x77, remoteID: 0x88}
	m.addPeer(id)
	guid := be.AppendUint64(nil, 0x77)
	drop := func(reason cmmsg.Reason, localID uint32, ari []byte) bool {
		msg := cmmsg.Make(make([]byte, wire.MADLen), cmmsg.KindREJ, 1)
		cmmsg.REJ(msg.Data()).Put(localID, 0x1234, cmmsg.AboutREQ, reason, ari)
		return m.Guard().Drop(msg)
	}
	for range strayAnswerBurst {
		drop(cmmsg.RejTimeout, 0x99, guid)
	}
	for _, c := range []struct {
		name   string
		reason cmmsg.Reason
		id     uint32
		ari    []byte
		drop   bool
	}{
		{"known", cmmsg.RejTimeout, 0x88, guid, false}, {"another number", cmmsg.RejTimeout, 0x89, guid, true},
		{"another node", cmmsg.RejTimeout, 0x88, be.AppendUint64(nil, 0x78), true},
		{"another reason", cmmsg.RejConsumer, 0x88, guid, true}, {"too short", cmmsg.RejTimeout, 0x88, guid[:7], true},
		{"nothing", cmmsg.RejTimeout, 0x88, nil, true},
	} {
		if got := drop(c.reason, c.id, c.ari); got != c.drop {
			t.Errorf("%s: dropped %v", c.name, got)
		}
	}
}

// The guard knows the requests that the machine has dropped, by the machine's clock.
func TestGuardKnowsDroppedRequests(t *testing.T) {
	m := New(Config{Seed: [32]byte{8: 4}})
	clock, machine := int64(5*time.Second), int64(1000*time.Second)
	m.guard.now = func() int64 { return clock }
	r := &requests{}
	a := netip.MustParseAddr("198.51.100.7")
	dropped := slices.Clone(r.from(a, 1))
	m.refused.add(machine, m.refused.hash(dropped))
	clock += int64(400 * time.Millisecond)
	m.guard.flood(machine+int64(400*time.Millisecond), board.Connect)
	for range 2 * guardRequestBurst {
		m.Guard().Drop(r.from(a, 1<<40|uint64(r.n)))
	}
	if !m.Guard().Drop(r.from(a, 1<<41)) {
		t.Error("more than a burst passes")
	}
	if m.Guard().Drop(dropped) {
		t.Error("the repetition is dropped")
	}
}

// The hashes of the guard spread numbers that differ in one part only.
func TestGuardSpreads(t *testing.T) {
	g := New(Config{}).Guard()
	gid := func(high, low int) (x [16]byte) {
		be.PutUint64(x[:], uint64(high))
		be.PutUint64(x[8:], uint64(low))
		return x
	}
	for name, count := range map[string]func(i int) *atomic.Uint32{
		"GUIDs of sources": func(i int) *atomic.Uint32 { return g.source(gid(1, 2), uint64(i)) },
		"networks":         func(i int) *atomic.Uint32 { return g.source(gid(i, 2), 3) },
		"hosts":            func(i int) *atomic.Uint32 { return g.source(gid(1, i), 3) },
		"GUIDs of peers":   func(i int) *atomic.Uint32 { return g.peer(uint64(i), 3) },
		"numbers of peers": func(i int) *atomic.Uint32 { return g.peer(3, uint32(i)) },
		"own numbers":      func(i int) *atomic.Uint32 { return g.own(uint32(i)) },
	} {
		different := map[*atomic.Uint32]bool{}
		for i := range 1000 {
			different[count(i)] = true
		}
		if len(different) < 900 {
			t.Errorf("%s: %d of 1000 have a place of their own", name, len(different))
		}
	}
}

// A source that is forgotten and learned again moves only the handshakes that count as unknown.
func TestSourceLearnedAgain(t *testing.T) {
	s := newFloodTest(t, 0)
	a := netip.MustParseAddr("192.0.2.9")
	s.request(a, 1)
	if !s.answer(a, 1) {
		t.Fatal("not established")
	}
	for id := range uint32(2) {
		s.request(a, 2+id)
	}
	half := func(unknown, known int) {
		t.Helper()
		if u, k := s.l.half[unknownSource].n, s.l.half[knownSource].n; u != unknown || k != known {
			t.Errorf("%d and %d half-open handshakes, want %d and %d", u, k, unknown, known)
		}
	}
	half(0, 2)
	s.m.forgetSource()
	s.request(a, 4)
	half(1, 2)
	if !s.answer(a, 2) {
		t.Error("not established")
	}
	half(0, 2)
	s.end()
}

// A listener makes room among its own handshakes, also if a source has many at another one.
func TestRoomOfAListener(t *testing.T) {
	s := newFloodTest(t, 4)
	other, err := s.m.Listen(0, ListenParams{Service: simTCP + 1, MaxHalfOpen: 100}, new(Batch))
	if err != nil {
		t.Fatal(err)
	}
	first := s.l
	greedy := netip.MustParseAddr("192.0.2.200")
	for id := range uint32(20) {
		s.requestTo(simTCP+1, greedy, 100+id)
	}
	for id := range uint32(4) {
		s.request(netip.AddrFrom4([4]byte{192, 0, 2, byte(id)}), 1+id)
	}
	s.pass(3 * second)
	s.request(netip.MustParseAddr("192.0.2.99"), 50)
	if n, m := first.half[unknownSource].n, other.half[unknownSource].n; n != 4 || m != 20 || s.m.Counters.Evicted != 1 {
		t.Errorf("%d and %d handshakes, %d evicted", n, m, s.m.Counters.Evicted)
	}
	s.end()
}

// In a flood at most floodWaiting requests wait for the program.
func TestWaitingInAFlood(t *testing.T) {
	m := New(Config{Seed: [32]byte{1}})
	l := &Listener{p: ListenParams{Backlog: NewBacklog(100)}}
	r := &requests{}
	for used := range floodWaiting + 2 {
		req := cmmsg.Msg(r.from(hereAddr, uint64(used)))
		if got, want := m.inTurn(int64(time.Hour), l, req), used < floodWaiting; got != want {
			t.Errorf("with %d that wait: %v", used, got)
		}
		l.p.Backlog.enter()
	}
}

// LastWills reports each ID once, however often it has changed.
func TestLastWillsReportOnce(t *testing.T) {
	s := newStage(t)
	s.m.cfg.LastWills = true
	s.run("connect i", "in REP", "establish i")
	for _, want := range []int{1, 0} {
		n := 0
		s.m.LastWills(func(*ID, []byte) { n++ })
		if n != want {
			t.Errorf("%d reports, want %d", n, want)
		}
	}
	s.run("disconnect i")
	n := 0
	s.m.LastWills(func(*ID, []byte) { n++ })
	if n != 1 {
		t.Errorf("%d reports after another change", n)
	}
}

// A listener takes what the port and its own limit allow.
func TestMTULimit(t *testing.T) {
	for _, c := range []struct{ port, listener, want uint8 }{
		{0, 0, 5}, {3, 0, 3}, {3, 2, 2}, {3, 4, 3}, {0, 4, 4}, {5, 5, 5},
	} {
		cfg := Config{}
		if c.port != 0 {
			cfg.MTU = func(a netip.Addr) uint8 {
				if a != hereAddr {
					t.Errorf("at %v", a)
				}
				return c.port
			}
		}
		if got := New(cfg).mtuLimit(&Listener{p: ListenParams{MTU: c.listener}}, hereAddr); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// The address that a request names must be that of its packet.
func TestPlausible(t *testing.T) {
	for _, c := range []struct {
		src, from string
		want      bool
	}{
		{"192.0.2.1", "192.0.2.1", true}, {"192.0.2.1", "::ffff:192.0.2.1", true}, {"192.0.2.1", "192.0.2.9", false},
		{"fd00::1", "fd00::1", true}, {"fe80::1", "fe80::1%eth0", true}, {"fd00::1", "fd00::2", false},
		{"0.0.0.0", "192.0.2.1", false}, {"::", "fd00::1", false}, {"127.0.0.1", "127.0.0.1", true},
		{"127.0.0.1", "127.0.0.2", false}, {"127.0.0.1", "192.0.2.1", false}, {"::1", "::1", true}, {"::1", "fd00::1", false},
	} {
		if got := plausible(netip.MustParseAddr(c.src), netip.MustParseAddr(c.from)); got != c.want {
			t.Errorf("%s from %s: %v", c.src, c.from, got)
		}
	}
}

// Numbers are 1 to the largest below the prefix, all of them.
func TestNumbersOfAPrefix(t *testing.T) {
	m := New(Config{IDPrefix: 0x35000000, IDBits: 30})
	seen := map[uint32]bool{}
	for range 12 {
		seen[m.newID()] = true
	}
	if len(seen) != 3 || !seen[1] || !seen[2] || !seen[3] {
		t.Errorf("%v, want 1 to 3", seen)
	}
}

// A repetition counts as sent and as repeated.
func TestRepetitionsCount(t *testing.T) {
	s := script(t, "connect i", "time 60s")
	c := &s.m.Counters
	if sent, again := c.Tx.Of(cmmsg.KindREQ), c.TxRetries.Of(cmmsg.KindREQ); sent != again+1 || again == 0 {
		t.Errorf("%d sent, %d repeated", sent, again)
	}
}

// The next deadline is the earliest, whatever is armed and disarmed.
func TestEarliestDeadline(t *testing.T) {
	m := New(Config{})
	rng := rand.New(rand.NewPCG(1, 2))
	ids := make([]*ID, 40)
	for i := range ids {
		ids[i] = &ID{}
	}
	deadlines := map[*ID]int64{}
	for range 2000 {
		id := ids[rng.IntN(len(ids))]
		if rng.IntN(4) == 0 {
			m.disarm(id)
		} else {
			deadlines[id] = rng.Int64N(1000)
			m.arm(id, deadlines[id])
		}
		want := int64(Never)
		for _, id := range ids {
			if id.slot != 0 {
				want = min(want, deadlines[id])
			}
		}
		if got := m.NextDeadline(); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}

// The path of a request that a listener answers is the one that its packet came by.
func TestOwnPath(t *testing.T) {
	id := &ID{path: Path{Path: link.Path{Src: hereAddr, Dst: thereAddr}}}
	for _, c := range []struct {
		src, dst netip.Addr
		want     bool
	}{
		{hereAddr, thereAddr, true}, {hereAddr, hereAddr, false}, {thereAddr, thereAddr, false},
		{netip.AddrFrom16(hereAddr.As16()), netip.AddrFrom16(thereAddr.As16()), true},
	} {
		if got := id.ownPath(&link.Path{Src: c.src, Dst: c.dst}); got != c.want {
			t.Errorf("%v to %v: %v", c.src, c.dst, got)
		}
	}
}
