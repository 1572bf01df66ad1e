package cm

import (
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// floodTest is a machine with a listener whose program accepts each request at once, and clients with any addresses, in
// virtual time.
type floodTest struct {
	t   testing.TB
	m   *Machine
	l   *Listener
	now int64
	out Batch
	mad [wire.MADLen]byte
	n   uint32 // of requests

	guid             uint64 // of clients
	timeout, retries uint8  // of requests
	accept           func(id *ID)
	rep              map[uint32][2]uint32 // by the client's ID: ours, and how many REPs were sent
	events           map[*ID]EventType    // the last one of each ID
}

func newFloodTest(t testing.TB, limit int) *floodTest {
	s := &floodTest{t: t, m: New(Config{GUID: hereGUID, Seed: [32]byte{1}}), guid: 0x5555, timeout: 31, retries: 15,
		rep: map[uint32][2]uint32{}, events: map[*ID]EventType{}}
	var err error
	if s.l, err = s.m.Listen(0, ListenParams{Service: simTCP, MaxHalfOpen: limit}, new(Batch)); err != nil {
		t.Fatal(err)
	}
	s.accept = func(id *ID) {
		s.m.Taken(id)
		if err := s.m.Accept(s.now, id, &AcceptParams{QPN: 0x100}, &s.out); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// handle passes events to the program and notes REPs.
func (s *floodTest) handle() {
	for i := 0; i < len(s.out.Events); i++ {
		ev := s.out.Events[i]
		s.events[ev.ID] = ev.Type
		if ev.Type == EventREQ {
			s.accept(ev.ID)
		}
	}
	for i := range s.out.Mail {
		if msg := cmmsg.Msg(s.out.Mail[i].MAD[:]); msg.Kind() == cmmsg.KindREP {
			s.rep[msg.RemoteID()] = [2]uint32{msg.LocalID(), s.rep[msg.RemoteID()][1] + 1}
		}
	}
	s.out.Reset()
}

// request sends the REQ of a client's ID. The client's QP has the ID as its number.
func (s *floodTest) request(from netip.Addr, id uint32) { s.requestTo(simTCP, from, id) }

// requestTo is request for another service.
func (s *floodTest) requestTo(service cmmsg.ServiceID, from netip.Addr, id uint32) {
	m := cmmsg.Make(s.mad[:], cmmsg.KindREQ, 1)
	cmmsg.REQ(m.Data()).Put(cmmsg.REQFields{
		LocalID: id, ServiceID: service, LocalGUID: s.guid, LocalQPN: id, RemoteTimeout: 20, LocalTimeout: s.timeout,
		MaxRetries: s.retries,
		PKey:       0xFFFF, MTU: 3, Primary: cmmsg.PathFields{LocalGID: cmmsg.GID(from), RemoteGID: cmmsg.GID(hereAddr),
			HopLimit: 64, AckTimeout: 17},
	})
	m.SetPrivate(cmmsg.AppendIPHeader(nil, netip.AddrPortFrom(from, 4000), hereAddr))
	s.m.OnMAD(s.now, 0, from, hereAddr, m, &s.out)
	s.handle()
}

// forged sends n requests from sources that never answer, at a rate for each second.
func (s *floodTest) forged(n int, rate int64, from func() netip.Addr) {
	for range n {
		s.n++
		s.request(from(), s.n|1<<23)
		s.pass(second / rate)
	}
}

// answer sends the client's RTU if a REP has arrived, and reports whether the connection is established.
func (s *floodTest) answer(from netip.Addr, id uint32) bool {
	ours := s.rep[id][0]
	m := cmmsg.Make(s.mad[:], cmmsg.KindRTU, 1)
	cmmsg.RTU(m.Data()).Put(id, ours)
	s.m.OnMAD(s.now, 0, from, hereAddr, m, &s.out)
	established := len(s.out.Events) == 1 && s.out.Events[0].Type == EventEstablished
	s.handle()
	return established
}

// connect is a client's handshake; the RTU comes after rtt. Requests are repeated as a peer's CM does.
func (s *floodTest) connect(from netip.Addr, id uint32, rtt int64, meanwhile func(d int64)) (tries int) {
	for tries = 1; tries <= 16; tries++ {
		s.request(from, id)
		meanwhile(rtt)
		if s.rep[id][1] > 0 && s.answer(from, id) {
			return tries
		}
		meanwhile(4608 * millisecond)
	}
	return tries
}

func (s *floodTest) pass(d int64) {
	end := s.now + d
	for s.m.NextDeadline() <= end {
		s.now = s.m.NextDeadline()
		s.m.OnTimer(s.now, &s.out)
		s.handle()
	}
	s.now = end
}

// end destroys all that is left and checks that nothing is.
func (s *floodTest) end() {
	s.t.Helper()
	for id := range s.events {
		s.m.Destroy(s.now, id, &s.out)
	}
	s.out.Reset()
	s.pass(200 * second)
	checkEmpty(s.t, s.m)
}

func spread() func() netip.Addr {
	n := uint32(10 << 24)
	return func() netip.Addr {
		n += 0x10101
		return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
	}
}

func fixed(a string) func() netip.Addr { return func() netip.Addr { return netip.MustParseAddr(a) } }

var honestAddr = netip.MustParseAddr("192.0.2.7")

// TestHalfOpenEnds: without an answer a handshake ends after 10 s at the latest, whatever the REQ asks for, and an
// unknown source gets few REPs.
func TestHalfOpenEnds(t *testing.T) {
	for timeout := range uint8(32) {
		for _, retries := range []uint8{0, 1, 3, 15} {
			s := newFloodTest(t, 0)
			s.timeout, s.retries = timeout, retries
			s.request(honestAddr, 7)
			s.pass(10 * second)
			if s.m.Live() != 0 || len(s.events) != 1 {
				t.Fatalf("code %d, %d retries: %d handshakes after 10 s", timeout, retries, s.m.Live())
			}
			for _, ev := range s.events {
				if ev != EventREPTimeout {
					t.Errorf("code %d, %d retries: the program gets %v", timeout, retries, ev)
				}
			}
			if n := s.rep[7][1]; n > 1+unknownREPs || n < 1+uint32(min(retries, 1)) {
				t.Errorf("code %d, %d retries: %d REPs", timeout, retries, n)
			}
			s.end()
		}
	}
}

// TestKnownSourceGetsAllREPs: the REQ decides how often the REP is repeated to a source that has answered before.
func TestKnownSourceGetsAllREPs(t *testing.T) {
	s := newFloodTest(t, 0)
	s.timeout = 14 // 64 ms
	if s.connect(honestAddr, 7, millisecond, s.pass) != 1 {
		t.Fatal("no connection")
	}
	s.request(honestAddr, 8)
	s.pass(9 * second)
	if n := s.rep[8][1]; n != 16 {
		t.Errorf("%d REPs, want 16", n)
	}
	s.end()
}

// TestRefusalAfterAnMRA: a peer that was told to wait is told eight times that it is refused, if its source is known,
// else four times.
func TestRefusalAfterAnMRA(t *testing.T) {
	for known, want := range map[bool]uint64{false: 1 + unknownREPs, true: 8} {
		s := newFloodTest(t, 0)
		if known && s.connect(honestAddr, 7, millisecond, s.pass) != 1 {
			t.Fatal("no connection")
		}
		var waiting *ID
		s.accept = func(id *ID) { waiting = id; s.m.Taken(id) }
		s.request(honestAddr, 8)
		s.request(honestAddr, 8)
		if err := s.m.Reject(s.now, waiting, cmmsg.RejConsumer, nil, nil, &s.out); err != nil {
			t.Fatal(err)
		}
		s.handle()
		s.pass(100 * second)
		if n := s.m.Counters.Tx.Of(cmmsg.KindREJ); n != want {
			t.Errorf("known source %v: %d REJs, want %d", known, n, want)
		}
		s.end()
	}
}

// TestMRAExtendsHalfOpen: a peer that asks for more time with an MRA gets it: the MRA proves that it exists.
func TestMRAExtendsHalfOpen(t *testing.T) {
	s := newFloodTest(t, 0)
	s.request(honestAddr, 7)
	m := cmmsg.Make(s.mad[:], cmmsg.KindMRA, 1)
	cmmsg.MRA(m.Data()).Put(7, s.rep[7][0], cmmsg.AboutREP, 22)
	s.m.OnMAD(s.now, 0, honestAddr, hereAddr, m, &s.out)
	s.pass(16 * second)
	if !s.answer(honestAddr, 7) {
		t.Error("the handshake ended although the peer had asked for 16 s")
	}
	s.end()
}

// TestSlowProgramKeepsRequests: a request that waits for the program itself does not end after 10 s.
func TestSlowProgramKeepsRequests(t *testing.T) {
	s := newFloodTest(t, 0)
	accept := s.accept
	var waiting *ID
	s.accept = func(id *ID) { waiting = id; s.m.Taken(id) }
	s.request(honestAddr, 7)
	s.pass(60 * second)
	accept(waiting)
	s.handle()
	if !s.answer(honestAddr, 7) {
		t.Error("the request ended while the program decided")
	}
	s.end()
}

// TestStaleRequestIsNotUndecided: a peer that ends its request with the reason "stale" leaves no place of the listener
// occupied while the ID is in timewait: it could occupy all of them.
func TestStaleRequestIsNotUndecided(t *testing.T) {
	const limit = 4
	s := newFloodTest(t, limit)
	accept := s.accept
	var waiting *ID
	s.accept = func(id *ID) { waiting = id; s.m.Taken(id) }
	for id := uint32(100); id < 100+limit; id++ {
		s.request(honestAddr, id)
		m := cmmsg.Make(s.mad[:], cmmsg.KindREJ, 1)
		cmmsg.REJ(m.Data()).Put(id, waiting.LocalID(), cmmsg.AboutOther, cmmsg.RejStale, nil)
		s.m.OnMAD(s.now, 0, honestAddr, hereAddr, m, &s.out)
		s.handle()
		if waiting.State() != StateTimewait || s.events[waiting] != EventREJ {
			t.Fatalf("state %v, event %v", waiting.State(), s.events[waiting])
		}
	}
	s.accept = accept
	s.request(honestAddr, 7)
	if !s.answer(honestAddr, 7) {
		t.Errorf("no place for a request; undecided: %d", s.l.undecided)
	}
	s.end()
}

// TestKnownSourceInAFlood: a source that has connected before connects at the first attempt throughout a flood, and
// afterwards; the tables stay within their limits, the program has few requests of the flood.
func TestKnownSourceInAFlood(t *testing.T) {
	for name, from := range map[string]func() netip.Addr{"many sources": spread(), "one source": fixed("10.1.1.1")} {
		t.Run(name, func(t *testing.T) {
			const limit, rate = 1024, 10_000
			s := newFloodTest(t, limit)
			flood := func(d int64) { s.forged(int(d*rate/second), rate, from) }
			if s.connect(honestAddr, 7, millisecond, s.pass) != 1 {
				t.Fatal("no connection before the flood")
			}
			for id := uint32(8); s.now < 5*second; id++ {
				if n := s.connect(honestAddr, id, 5*millisecond, flood); n != 1 {
					t.Fatalf("at %d ms: %d attempts", s.now/millisecond, n)
				}
				flood(20 * millisecond)
				if n := s.l.half[unknownSource].n + s.l.half[knownSource].n; n > limit+2 {
					t.Fatalf("%d handshakes are half-open", n)
				}
			}
			if n := len(s.events); n > 2*limit+2600*5 { // one each 0.4 ms: the program takes no time here
				t.Errorf("the program got %d requests of %d", n, s.n)
			}
			s.pass(second)
			if n := s.connect(netip.MustParseAddr("192.0.2.8"), 1<<20, millisecond, s.pass); n != 1 {
				t.Errorf("a second after the flood: %d attempts", n)
			}
			t.Logf("%d requests of %d reached the program, %d evicted", len(s.events), s.n, s.m.Counters.Evicted)
			s.end()
		})
	}
}

// TestUnknownSourceInAFlood: an unknown client connects as its CM repeats the request.
func TestUnknownSourceInAFlood(t *testing.T) {
	s := newFloodTest(t, 1024)
	from := spread()
	flood := func(d int64) { s.forged(int(d/(100_000)), 10_000, from) } // 10,000/s
	flood(2 * second)
	total := 0
	for i := range byte(5) {
		n := s.connect(netip.AddrFrom4([4]byte{192, 0, 2, 10 + i}), 100+uint32(i), 5*millisecond, flood)
		if n > 8 {
			t.Errorf("client %d: %d attempts", i, n)
		}
		total += n
	}
	t.Logf("%d attempts of 5 clients", total)
	if total > 16 {
		t.Errorf("%d attempts of 5 clients", total)
	}
	s.end()
}

// TestBurstOfOneClient: a client that begins thousands of handshakes before it answers the first has them all.
func TestBurstOfOneClient(t *testing.T) {
	const n = 8000
	s := newFloodTest(t, 0)
	for id := uint32(1); id <= n; id++ {
		s.request(honestAddr, id)
		s.pass(millisecond / 8)
	}
	for id := uint32(1); id <= n; id++ {
		if !s.answer(honestAddr, id) {
			t.Fatalf("handshake %d has ended; %d dropped, %d evicted", id, s.m.Counters.Flooded, s.m.Counters.Evicted)
		}
		s.pass(millisecond / 8)
	}
	s.end()
}

// TestEvictedHandshake: the program gets an event, the peer nothing. Its RTU is answered with a REJ, its REQ begins a
// new handshake.
func TestEvictedHandshake(t *testing.T) {
	s := newFloodTest(t, 2)
	s.request(honestAddr, 1)
	s.pass(second)
	s.request(netip.MustParseAddr("192.0.2.8"), 2)
	s.pass(longGrace / 2)
	s.request(netip.MustParseAddr("192.0.2.9"), 3) // none is old enough
	if len(s.rep) != 2 || s.m.Counters.Flooded != 1 {
		t.Errorf("%d were answered, %d dropped", len(s.rep), s.m.Counters.Flooded)
	}
	s.pass(second)
	s.request(netip.MustParseAddr("192.0.2.9"), 3)
	if len(s.rep) != 3 || s.m.Counters.Evicted != 1 || len(s.events) != 3 {
		t.Errorf("%d were answered, %d evicted", len(s.rep), s.m.Counters.Evicted)
	}
	told := 0
	for _, ev := range s.events {
		if ev == EventREPTimeout {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d handshakes ended for the program, want 1", told)
	}
	m := cmmsg.Make(s.mad[:], cmmsg.KindRTU, 1)
	cmmsg.RTU(m.Data()).Put(1, s.rep[1][0])
	s.m.OnMAD(s.now, 0, honestAddr, hereAddr, m, &s.out)
	if len(s.out.Mail) != 1 || cmmsg.Msg(s.out.Mail[0].MAD[:]).Kind() != cmmsg.KindREJ {
		t.Errorf("the RTU was answered with %d messages", len(s.out.Mail))
	}
	s.out.Reset()
	s.pass(2 * second)
	if n := s.connect(honestAddr, 1, millisecond, s.pass); n != 1 {
		t.Errorf("%d attempts", n)
	}
	s.end()
}

// TestShareOfASource: at the limit the requests of a source with more than its share displace its own handshakes.
func TestShareOfASource(t *testing.T) {
	s := newFloodTest(t, 16)
	s.request(honestAddr, 1) // the oldest
	for id := uint32(2); id <= 40; id++ {
		s.pass(longGrace / 8)
		s.request(netip.MustParseAddr("192.0.2.66"), id)
	}
	if s.m.Counters.Evicted == 0 || !s.answer(honestAddr, 1) {
		t.Errorf("%d handshakes of the source above its share were evicted, and one of another source", s.m.Counters.Evicted)
	}
	s.end()
}

// TestForgedKnownSource: a flood with the address of a known source does not end its handshakes, one with its GUID
// too does not end others'.
func TestForgedKnownSource(t *testing.T) {
	t.Run("address", func(t *testing.T) {
		s := newFloodTest(t, 1024)
		s.connect(honestAddr, 7, millisecond, s.pass)
		flood := func(d int64) {
			for range d / (millisecond / 10) {
				s.guid++
				s.forged(1, 10_000, fixed(honestAddr.String()))
			}
		}
		flood(3 * second)
		for id := uint32(9); id < 40; id++ {
			guid := s.guid
			s.guid = 0x5555
			s.request(honestAddr, id)
			s.guid = guid
			flood(50 * millisecond)
			if !s.answer(honestAddr, id) {
				t.Errorf("connection %d has ended", id)
			}
		}
		s.end()
	})
	t.Run("address and GUID", func(t *testing.T) {
		s := newFloodTest(t, 1024)
		other := netip.MustParseAddr("192.0.2.8")
		s.connect(honestAddr, 7, millisecond, s.pass)
		s.connect(other, 8, millisecond, s.pass)
		flood := func(d int64) { s.forged(int(d/100_000), 10_000, fixed(honestAddr.String())) }
		flood(3 * second)
		for id := uint32(9); id < 40; id++ {
			if n := s.connect(other, id, 50*millisecond, flood); n != 1 {
				t.Errorf("connection %d: %d attempts", id, n)
			}
		}
		s.end()
	})
}

// TestKnownSourcesAreBounded: the number of known sources has a limit, and IPv6 peers count by their /64.
func TestKnownSourcesAreBounded(t *testing.T) {
	s := newFloodTest(t, 0)
	for i := range uint32(2 * maxKnown) {
		id := &ID{}
		id.path.Dst = netip.AddrFrom4([4]byte{11, byte(i >> 16), byte(i >> 8), byte(i)})
		s.m.learnSource(id)
	}
	if s.m.known != maxKnown || len(s.m.sources) != maxKnown {
		t.Errorf("%d sources, %d known", len(s.m.sources), s.m.known)
	}
	a, b, c := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2:1"),
		netip.MustParseAddr("2001:db8:0:1::1")
	d, e := netip.MustParseAddr("::ffff:1.2.3.4"), netip.MustParseAddr("1.2.3.4")
	if sourceKey(a, 1) != sourceKey(b, 1) || sourceKey(a, 1) == sourceKey(c, 1) || sourceKey(a, 1) == sourceKey(a, 2) ||
		sourceKey(d, 1) != sourceKey(e, 1) {
		t.Error("wrong keys of sources")
	}
}

// TestOldestTimewaitIsRetired: closed connections, whose timewait the peer chooses, do not fill the table; the oldest
// are retired.
func TestOldestTimewaitIsRetired(t *testing.T) {
	s := newFloodTest(t, 0)
	s.m.cfg.MaxIDs = 8
	for id := uint32(1); id <= 40; id++ {
		if n := s.connect(honestAddr, id, millisecond, s.pass); n != 1 {
			t.Fatalf("connection %d: %d attempts", id, n)
		}
		for ours := range s.events {
			s.m.Destroy(s.now, ours, &s.out)
		}
		clear(s.events)
		s.out.Reset()
	}
	if s.m.Live() > 8 || s.m.Counters.TableFull != 0 {
		t.Errorf("%d IDs, %d requests dropped", s.m.Live(), s.m.Counters.TableFull)
	}
	s.end()
}

// BenchmarkFlood is what a forged REQ costs the machine in a flood.
func BenchmarkFlood(b *testing.B) {
	s := newFloodTest(b, 1024)
	from := spread()
	s.forged(20_000, 10_000, from)
	b.ReportAllocs()
	for b.Loop() {
		s.forged(1, 100_000, from)
	}
}
