package cm

import (
	"errors"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// TestW_CM_08_AckTimeout: the specification's vectors; the result is never less than the sum of its parts.
func TestW_CM_08_AckTimeout(t *testing.T) {
	for _, c := range []struct{ delay, life, want uint8 }{
		{15, 16, 17}, {0, 16, 17}, {16, 16, 18}, {18, 16, 19}, {20, 16, 20}, {15, 18, 19}, {17, 16, 18}, {31, 0, 31}, {0,
			31, 31}, {31, 31, 31}, {0, 0, 2},
	} {
		if got := AckTimeout(c.delay, c.life); got != c.want {
			t.Errorf("delay %d, life time %d: %d, want %d", c.delay, c.life, got, c.want)
		}
	}
	for delay := range uint8(32) {
		for life := range uint8(32) {
			if got := AckTimeout(delay, life); got < delay || got < life || got > 31 {
				t.Errorf("delay %d, life time %d: %d", delay, life, got)
			}
		}
	}
}

// TestW_CM_09_TimeCodes: 2^(n-8) milliseconds.
func TestW_CM_09_TimeCodes(t *testing.T) {
	for _, c := range []struct {
		code            uint8
		ms, fromPeersMS int64
	}{
		{0, 1, 1}, {8, 1, 1}, {9, 2, 2}, {16, 256, 256}, {20, 4096, 4096}, {24, 65536, 65536}, {25, 131072, 65536}, {31,
			1 << 23, 65536}, {255, 1 << 23, 65536},
	} {
		if wait(c.code) != c.ms*millisecond || peerWait(c.code) != c.fromPeersMS*millisecond {
			t.Errorf("code %d: %d ns, from a peer %d ns", c.code, wait(c.code), peerWait(c.code))
		}
	}
}

// TestNamesDoNotRepeat: communication IDs come once each, and two machines do not begin alike.
func TestT_05_NamesDoNotRepeat(t *testing.T) {
	a := New(Config{Seed: [32]byte{1}})
	seen := make(map[uint32]bool, 1<<17)
	near := 0
	for last := uint32(0); len(seen) < 1<<17; {
		n := a.newID()
		if seen[n] {
			t.Fatalf("%#x comes twice within %d", n, len(seen))
		}
		seen[n] = true
		if d := int32(n - last); d > -1<<16 && d < 1<<16 {
			near++
		}
		last = n
	}
	if near > 32 { // 4 are to be expected of random numbers
		t.Errorf("%d of %d are near the one before", near, len(seen))
	}
	b := New(Config{Seed: [32]byte{2}})
	for range 1000 {
		if n := b.newID(); seen[n] && seen[b.newID()] && seen[b.newID()] {
			t.Fatal("another machine begins alike")
		}
	}
}

// TestMachinesDiffer: IDs and PSNs follow from the seed.
func TestT_05_MachinesDiffer(t *testing.T) {
	draw := func(seed byte) (x [4]uint32) {
		m := New(Config{Seed: [32]byte{seed}})
		return [4]uint32{m.newID(), m.newID(), m.newPSN(), m.newPSN()}
	}
	if a, b := draw(1), draw(1); a != b {
		t.Errorf("the same seed gives %x and %x", a, b)
	}
	a, b := draw(1), draw(2)
	for i := range a {
		if a[i] == b[i] {
			t.Errorf("seeds 1 and 2 give %x and %x", a, b)
		}
		if i >= 2 && a[i] > 0xFFFFFF {
			t.Errorf("PSN %#x has more than 24 bits", a[i])
		}
	}
}

// TestKeptAnswersAreBounded: refusals beyond the limit are not kept.
func TestKeptAnswersAreBounded(t *testing.T) {
	s := newStage(t)
	if _, err := s.m.Listen(0, ListenParams{Service: cmmsg.PSTCP.Service(7471)}, new(Batch)); err != nil {
		t.Fatal(err)
	}
	mad := s.message(parseArgs([]string{"REQ"}))
	for i := range uint32(maxKept + 100) {
		be.PutUint32(mad[24:], i)                // its ID
		be.PutUint32(mad[24+32:], i<<8|0x100<<8) // its QPN
		s.m.OnMAD(0, 0, thereAddr, hereAddr, mad, &s.out)
		if len(s.out.Events) != 1 {
			t.Fatalf("request %d: %d events", i, len(s.out.Events))
		}
		if err := s.m.Reject(0, s.out.Events[0].ID, cmmsg.RejConsumer, nil, nil, &s.out); err != nil {
			t.Fatal(err)
		}
		s.out.Reset()
	}
	if s.m.kept != maxKept || len(s.m.peers) != maxKept || s.m.live != 0 {
		t.Errorf("%d kept answers, %d peers, %d live", s.m.kept, len(s.m.peers), s.m.live)
	}
	calls := 0
	for s.m.NextDeadline() != Never {
		calls++
		s.m.OnTimer(s.m.NextDeadline(), &s.out)
	}
	if want := maxKept / timersPerCall; calls != want {
		t.Errorf("OnTimer was called %d times, want %d: it does %d things each time", calls, want, timersPerCall)
	}
	checkEmpty(t, s.m)
}

// TestSharedBacklog: listeners of one program on two devices have one limit.
func TestSharedBacklog(t *testing.T) {
	b := NewBacklog(1)
	p := ListenParams{Service: cmmsg.PSTCP.Service(7471), Backlog: b}
	var s [2]*stage
	var got [2]int
	for i := range s {
		s[i] = newStage(t)
		if _, err := s[i].m.Listen(0, p, new(Batch)); err != nil {
			t.Fatal(err)
		}
		s[i].m.OnMAD(0, 0, thereAddr, hereAddr, s[i].message(parseArgs([]string{"REQ"})), &s[i].out)
		got[i] = len(s[i].out.Events)
	}
	if got != [2]int{1, 0} || b.Used() != 1 {
		t.Errorf("requests that came through: %v; %d places taken", got, b.Used())
	}
	id := s[0].out.Events[0].ID
	s[0].m.Taken(id)
	s[0].m.Taken(id)
	s[0].m.Destroy(0, id, &s[0].out)
	if b.Used() != 0 {
		t.Errorf("%d places are taken after the request was", b.Used())
	}
}

// TestC_LIS_06_Backlog: the sizes of a backlog.
func TestC_LIS_06_Backlog(t *testing.T) {
	for n, want := range map[int]int64{-1: 1024, 0: 1024, 1: 1, 1024: 1024, 1025: 1024} {
		if b := NewBacklog(n); b.limit != want {
			t.Errorf("backlog %d: %d, want %d", n, b.limit, want)
		}
	}
}

func TestNamesOfStatesAndEvents(t *testing.T) {
	for s := StateREQSent; s <= StateSIDRREQRcvd; s++ {
		if name := s.String(); name == "" || name != strings.ToUpper(name) {
			t.Errorf("state %d is %q", s, name)
		}
	}
	for e := EventREQ; e <= EventSilent; e++ {
		if name := e.String(); name == "" || strings.HasPrefix(name, "event") {
			t.Errorf("event %d is %q", e, name)
		}
	}
	if State(17).String() != "state 17" || EventType(0).String() != "event 0" || EventType(18).String() != "event 18" {
		t.Error("states or events that do not exist have names")
	}
}

// pair is two machines without a network between them: mail arrives at once.
type pair struct {
	a, b     *Machine
	now      int64
	toA, toB Batch
	qpn      uint32
	accepted []*ID
}

func newPair(t testing.TB) *pair {
	p := &pair{a: New(Config{GUID: 1, Seed: [32]byte{1}}), b: New(Config{GUID: 2, Seed: [32]byte{2}})}
	if _, err := p.b.Listen(0, ListenParams{Service: simTCP}, new(Batch)); err != nil {
		t.Fatal(err)
	}
	return p
}

// exchange carries mail in both directions until there is none, and does what programs do.
func (p *pair) exchange(t testing.TB) {
	for len(p.toA.Mail)+len(p.toB.Mail) > 0 {
		p.carry(t, p.b, &p.toB, &p.toA)
		p.carry(t, p.a, &p.toA, &p.toB)
	}
}

func (p *pair) carry(t testing.TB, to *Machine, in, out *Batch) {
	for i := range in.Mail {
		mail := &in.Mail[i]
		to.OnMAD(p.now, 0, mail.Path.Src, mail.Path.Dst, mail.MAD[:], out)
		for _, e := range out.Events {
			var err error
			switch e.Type {
			case EventREQ:
				p.qpn++
				p.accepted = append(p.accepted, e.ID)
				err = to.Accept(p.now, e.ID, &AcceptParams{QPN: p.qpn}, out)
			case EventREP:
				err = to.Establish(e.ID, nil, out)
			case EventDREQ:
				err = to.Disconnect(p.now, e.ID, nil, out)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		clear(out.Events)
		out.Events = out.Events[:0]
	}
	in.Mail = in.Mail[:0]
}

// connect makes a connection.
func (p *pair) connect(t testing.TB) *ID {
	p.qpn++
	id := p.a.NewID(nil)
	path := Path{MTU: 3}
	path.Src, path.Dst = hereAddr, thereAddr
	if err := p.a.Connect(p.now, id, &ConnectParams{Service: simTCP, Path: path, QPN: p.qpn}, &p.toB); err != nil {
		t.Fatal(err)
	}
	p.exchange(t)
	if id.State() != StateEstablished {
		t.Fatalf("the connection is %v", id.State())
	}
	return id
}

// disconnect ends it and lets timewait pass.
func (p *pair) disconnect(t testing.TB, id *ID) {
	if err := p.a.Disconnect(p.now, id, nil, &p.toB); err != nil {
		t.Fatal(err)
	}
	p.exchange(t)
}

// pass lets time pass.
func (p *pair) pass(d int64) {
	p.now += d
	for _, m := range []*Machine{p.a, p.b} {
		for m.NextDeadline() <= p.now {
			m.OnTimer(p.now, &p.toA)
		}
	}
	p.toA.Reset()
}

// TestMemoryOfIdleConnections: an established connection costs under 1 KiB at each end.
func TestMemoryOfIdleConnections(t *testing.T) {
	p := newPair(t)
	p.connect(t)
	const n = 10_000
	before := heapInUse()
	ids := make([]*ID, n)
	for i := range ids {
		ids[i] = p.connect(t)
	}
	each := (heapInUse() - before) / (2 * n)
	t.Logf("%d bytes for each end of %d connections", each, n)
	if each > 1024 {
		t.Errorf("%d bytes for each end of a connection", each)
	}
	for _, id := range ids {
		p.disconnect(t, id)
	}
	p.pass(10 * second)
	if p.a.Live() != 1 || p.b.Live() != 1 {
		t.Errorf("%d and %d are left, want the first one", p.a.Live(), p.b.Live())
	}
	runtime.KeepAlive(ids)
}

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// BenchmarkConnectDisconnect is a whole life: five messages, both ends, and timewait.
func BenchmarkConnectDisconnect(b *testing.B) { benchmarkLife(b, 0) }

// BenchmarkConnectDisconnectAmong10000 is the same beside 10,000 established connections.
func BenchmarkConnectDisconnectAmong10000(b *testing.B) { benchmarkLife(b, 10_000) }

func benchmarkLife(b *testing.B, others int) {
	p := newPair(b)
	for range others {
		p.connect(b)
	}
	p.accepted = p.accepted[:0]
	b.ReportAllocs()
	for b.Loop() {
		p.disconnect(b, p.connect(b))
		p.accepted = p.accepted[:0]
		p.pass(10 * millisecond)
	}
}

// BenchmarkRefuse is a request without a listener.
func BenchmarkRefuse(b *testing.B) {
	s := newStage(nil)
	mad := s.message(parseArgs([]string{"REQ"}))
	b.ReportAllocs()
	for b.Loop() {
		s.m.OnMAD(0, 0, thereAddr, hereAddr, mad, &s.out)
		s.out.Reset()
	}
}

// BenchmarkRepeat is one repetition among 10,000 waiting requests.
func BenchmarkRepeat(b *testing.B) {
	p := newPair(b)
	path := Path{MTU: 3}
	path.Src, path.Dst = hereAddr, thereAddr
	for i := range 10_000 {
		c := ConnectParams{Service: simTCP, Path: path, QPN: uint32(i + 1)}
		if err := p.a.Connect(int64(i)*1000, p.a.NewID(nil), &c, &p.toB); err != nil {
			b.Fatal(err)
		}
		p.toB.Reset()
	}
	for _, id := range p.a.ids {
		id.pend.left = 255
	}
	b.ReportAllocs()
	for b.Loop() {
		first := p.a.timers[0]
		first.id.pend.left = 255
		p.a.expire(first.deadline, first.id, &p.toB)
		p.toB.Reset()
	}
}

// TestErrorsAreErrnos: errors.Is finds the errno, and the text names it.
func TestErrorsAreErrnos(t *testing.T) {
	s := newStage(t)
	id := s.m.NewID(nil)
	path := Path{MTU: 3}
	path.Src, path.Dst = hereAddr, thereAddr
	err := s.m.Connect(0, id, &ConnectParams{Path: path}, &s.out)
	if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "EINVAL") || id.State() != StateIdle {
		t.Errorf("without a QP: %v", err)
	}
	c := ConnectParams{Service: simTCP, Path: path, QPN: 5}
	if err := s.m.Connect(0, id, &c, &s.out); err != nil { // what failed has not used the ID up
		t.Fatal(err)
	}
	if id.Service() != simTCP || id.LocalPSN() != cmmsg.REQ(cmmsg.Msg(s.out.Mail[0].MAD[:]).Data()).StartPSN() {
		t.Errorf("the ID asks for %v with PSN %#x", id.Service(), id.LocalPSN())
	}
	l, err := s.m.Listen(0, ListenParams{Service: simTCP}, new(Batch))
	if err != nil || l.Params().Service != simTCP {
		t.Fatal(err)
	}
	if _, err := s.m.Listen(0, ListenParams{Service: simTCP}, new(Batch)); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listening twice: %v", err)
	}
	s.m.cfg.MaxIDs = 1
	if err := s.m.Lookup(0, s.m.NewID(nil), &LookupParams{Service: simUDP, Path: path}, &s.out); !errors.Is(err,
		syscall.ENOMEM) {
		t.Errorf("table full: %v", err)
	}
}
