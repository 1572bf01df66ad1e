package shm

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// ordered places a counted SEND of n bytes of one of two QPs in turn, whose acknowledgement is Ack{PSN: number}, and
// publishes it.
func (s *side) ordered(path *link.Path, qpn uint32, n int, number uint32) {
	s.tb.Helper()
	b, _ := s.p.PlaceCounted(path, qpn, wire.BTHLen+n, link.Ack{From: s, PSN: number, Life: 5 + number%2})
	if b == nil {
		s.tb.Fatal("no room for a request")
	}
	clear(b)
	wire.BTH(b).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, qpn, number&0xFFFFFF, 0)
	s.p.Publish()
}

// acks receives once and returns the PSNs of the acknowledgements.
func (s *side) acks() (psns []uint32) {
	s.take()
	for _, a := range s.rx.Acks {
		if a.From != s || a.Life != 5+a.PSN%2 {
			s.tb.Errorf("acknowledgement %+v", a)
		}
		psns = append(psns, a.PSN)
	}
	return psns
}

// count receives once, acknowledges the counted requests that it chooses by PSN, and returns these and the number of
// the other packets.
func (s *side) count(back *link.Path, qpn uint32, choose func(psn uint32) bool) (counted []uint32, others int) {
	s.tb.Helper()
	for _, p := range s.take() {
		psn := wire.BTH(p.Data).PSN()
		switch {
		case p.Counter == nil:
			others++
		case !choose(psn):
		case !p.Counter.Count(back, qpn):
			s.tb.Fatal("no room for an acknowledgement")
		default:
			counted = append(counted, psn)
		}
	}
	s.p.Publish()
	return counted, others
}

func all(uint32) bool { return true }

// between returns two sides and the paths between them.
func between(t testing.TB) (a, b *side, there, back *link.Path) {
	d := new(testDirectory)
	a, b = d.open(t, addrA, 1), d.open(t, addrB, 1)
	return a, b, a.ready(addrB, 7), b.ready(addrA, 5)
}

// TestCountedRequests: the sender gets the acknowledgements of those counted requests that the receiver has counted,
// once and in order, whatever their length and whatever else is sent meanwhile in both directions.
func TestCountedRequests(t *testing.T) {
	a, b, there, back := between(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	var want []uint32
	counted, others := 0, 0
	for number := range uint32(20000) {
		if rnd.IntN(8) == 0 {
			a.put(there, 7, 8, number)
			a.p.Send(a.tx)
		} else {
			a.ordered(there, 7, []int{0, 8, 12, 40, 200, 2000}[rnd.IntN(6)], number)
		}
		if rnd.IntN(20) > 0 && number < 19999 {
			continue
		}
		every := rnd.IntN(10) > 0
		for range 1 + rnd.IntN(40) {
			if rnd.IntN(4) == 0 {
				b.put(back, 5, 8, number)
				b.p.Send(b.tx)
			}
			got, n := b.count(back, 5, func(uint32) bool { return every && rnd.IntN(10) > 0 })
			want, counted, others = append(want, got...), counted+len(got), others+n
		}
		for range 50 {
			got := a.acks()
			if len(got) > len(want) || !slices.Equal(got, want[:len(got)]) {
				t.Fatalf("acknowledged %d, want %d", got, want)
			}
			want = want[len(got):]
		}
		if len(want) > 0 {
			t.Fatalf("%d are missing", want)
		}
	}
	if counted < 10000 || others < 1000 {
		t.Errorf("%d requests were counted, %d others", counted, others)
	}
	c := &there.Route.(*route).rings.Load().tx[0][0].counted
	for i := range c.acks {
		if (uint64(i)-c.done)%maxCounted >= c.placed-c.done && c.acks[i].From != nil {
			t.Errorf("QP of note %d is kept", i)
		}
	}
}

// TestCountedLimit: no more requests than a limit are counted until the receiver has told of them. Further ones are
// ordinary packets.
func TestCountedLimit(t *testing.T) {
	a, b, there, back := between(t)
	const more = 50
	for round := range 3 {
		for i := range uint32(maxCounted + more) {
			a.ordered(there, 7, 8, i)
		}
		counted, others := 0, 0
		for counted+others < maxCounted+more {
			got, n := b.count(back, 5, all)
			counted, others = counted+len(got), others+n
		}
		if counted != maxCounted {
			t.Errorf("round %d: %d requests were counted", round, counted)
		}
		n := 0
		for range 30 {
			n += len(a.acks())
		}
		if n != maxCounted {
			t.Errorf("round %d: %d acknowledgements", round, n)
		}
	}
}

// TestCountsInOneRecord: a batch has one record of acknowledgements.
func TestCountsInOneRecord(t *testing.T) {
	a, b, there, back := between(t)
	b.put(back, 5, 8, 0) // the receiver gets to know the flow
	b.p.Send(b.tx)
	out := &back.Route.(*route).rings.Load().tx[0][0].prod
	for i := range uint32(recvMax) {
		a.ordered(there, 7, 8, i)
	}
	before := out.Unread()
	if got, _ := b.count(back, 5, all); len(got) != recvMax {
		t.Fatalf("counted %d", got)
	}
	if n := out.Unread() - before; n != line {
		t.Errorf("%d bytes of the ring, want %d", n, line)
	}
	if got := a.acks(); len(got) != recvMax {
		t.Errorf("acknowledged %d", got)
	}
}

// TestCountsBetweenPackets: packets that are placed before and after a record of acknowledgements, and published with
// it, do not share its line.
func TestCountsBetweenPackets(t *testing.T) {
	a, b, there, back := between(t)
	b.put(back, 5, 8, 0) // the receiver gets to know the flow
	b.p.Send(b.tx)
	a.next()
	a.ordered(there, 7, 8, 1)
	for _, p := range b.next() {
		b.put(back, 5, 8, 1)
		if !p.Counter.Count(back, 5) {
			t.Error("not counted")
		}
		b.put(back, 5, 8, 2)
	}
	b.p.Send(b.tx)
	got := a.acks()
	if len(a.rx.Packets) != 2 || !slices.Equal(got, []uint32{1}) {
		t.Errorf("%d packets, acknowledged %d", len(a.rx.Packets), got)
	}
}

// TestSkippedRequests: a receiver that does not count requests tells so before the sender has no more numbers, also if
// it had no ring to the sender at first.
func TestSkippedRequests(t *testing.T) {
	a, b, there, back := between(t)
	never := func(uint32) bool { return false }
	for i := range uint32(10 * maxCounted) {
		a.ordered(there, 7, 8, i)
		if i%recvMax == 0 {
			for range 3 {
				b.count(back, 5, never)
			}
			a.take()
		}
		if i == maxCounted { // which it could have told of, had it known where
			far := &link.Path{Src: addrB, Dst: netip.MustParseAddr("203.0.113.1")}
			b.Prepare(far, 5)
			mk := mark{port: b.p, ring: &(*b.in.Load())[0].rx[0][0]}
			if mk.Count(far, 5) {
				t.Fatal("counted without a ring")
			}
			mk.ring.count.peer = addrA
		}
	}
	for range 30 {
		b.count(back, 5, never)
		a.take()
	}
	c := &there.Route.(*route).rings.Load().tx[0][0].counted
	if n := c.placed - c.done; n > maxCounted/2+recvMax {
		t.Errorf("%d of %d requests were not told of", n, c.placed)
	}
	if c.placed < 5*maxCounted {
		t.Errorf("%d requests were counted", c.placed)
	}
}

// TestCountsWake: acknowledgements wake the sender's port, as packets do.
func TestCountsWake(t *testing.T) {
	a, b, there, back := between(t)
	a.ordered(there, 7, 8, 1)
	before := a.p.sleep.Load()
	woken := make(chan struct{})
	go func() { a.p.Wait(-1); close(woken) }()
	a.await("sleep", func() bool { return a.p.sleep.Load() == before+1 })
	b.await("request", func() bool { got, _ := b.count(back, 5, all); return len(got) == 1 })
	<-woken
	if got := a.acks(); !slices.Equal(got, []uint32{1}) {
		t.Errorf("acknowledged %d", got)
	}
}

// TestFullRingOfCounts: without room for the record, requests are not counted, and nothing is lost.
func TestFullRingOfCounts(t *testing.T) {
	a, b, there, back := between(t)
	b.fill(back)
	for i := range uint32(3) {
		a.ordered(there, 7, 8, i)
	}
	for _, p := range b.next() {
		if p.Counter == nil || p.Counter.Count(back, 5) {
			t.Error("counted without room")
		}
	}
	for len(a.take()) > 0 {
	}
	a.ordered(there, 7, 8, 3)
	b.await("request", func() bool { got, _ := b.count(back, 5, all); return len(got) == 1 })
	var got []uint32
	a.await("acknowledgement", func() bool { got = a.acks(); return got != nil })
	if !slices.Equal(got, []uint32{3}) {
		t.Errorf("acknowledged %d", got)
	}
}

// TestInvalidCounts: records that no correct receiver writes end the ring set. Those of an unknown ring set, and those
// that tell of requests again, are ignored.
func TestInvalidCounts(t *testing.T) {
	for name, c := range map[string]struct {
		n           int
		wrong       uint64 // added to the id
		first, mask uint64
		valid       bool
		acks        []uint32
	}{
		"right":             {countsLen, 0, 1, 5, true, []uint32{1, 3}},
		"only skipped":      {countsLen, 0, 4, 0, true, nil},
		"too short":         {countsLen - 8, 0, 1, 1, false, nil},
		"too long":          {countsLen + 8, 0, 1, 1, false, nil},
		"another ring set":  {countsLen, 1, 1, 1, true, nil},
		"beyond the last":   {countsLen, 0, 1, 1 << 3, false, nil},
		"far beyond":        {countsLen, 0, 4, 1 << 63, false, nil},
		"begins beyond":     {countsLen, 0, 5, 0, false, nil},
		"begins far beyond": {countsLen, 0, 1 << 63, 1, false, nil},
		"the largest":       {countsLen, 0, ^uint64(0), 1, false, nil},
	} {
		a, b, there, back := between(t)
		for i := range uint32(4) {
			a.ordered(there, 7, 8, i)
		}
		tell := func(n int, wrong, first, mask uint64) {
			to := back.Route.(*route).rings.Load().tx[0][0]
			data := to.prod.Put(kindCounts, 0, n)
			binary.LittleEndian.PutUint64(data, there.Route.(*route).rings.Load().id+wrong)
			binary.LittleEndian.PutUint64(data[8:], first)
			if len(data) > 16 {
				binary.LittleEndian.PutUint64(data[16:], mask)
			}
			b.p.publishes(to)
			b.p.Publish()
		}
		if tell(c.n, c.wrong, c.first, c.mask); !slices.Equal(a.acks(), c.acks) {
			t.Errorf("%s: acknowledged %v, want %d", name, a.rx.Acks, c.acks)
		}
		in := *a.in.Load()
		if got := len(in) > 0 && !in[0].invalid.Load(); got != c.valid {
			t.Errorf("%s: valid: %v", name, got)
		}
		if c.acks == nil {
			continue
		}
		tell(countsLen, 0, 1, 1)
		tell(countsLen, 0, 4, 0)
		a.ordered(there, 7, 8, 4)
		tell(countsLen, 1, 4, 1)
		if got := a.acks(); got != nil || (*a.in.Load())[0].invalid.Load() {
			t.Errorf("%s: acknowledged again: %d", name, got)
		}
		b.take()
	}
}

// TestCountsOfAnotherProcess: a process cannot acknowledge requests to another one.
func TestCountsOfAnotherProcess(t *testing.T) {
	var d testDirectory
	a, b, c := d.open(t, addrA, 1), d.open(t, addrB, 1), d.open(t, addrC, 1)
	toB, toC := a.ready(addrB, 7), a.ready(addrC, 7)
	fromB, fromC := b.ready(addrA, 5), c.ready(addrA, 5)
	a.ordered(toB, 7, 8, 1)
	a.ordered(toC, 7, 8, 2)
	if got, _ := c.count(fromC, 5, all); !slices.Equal(got, []uint32{2}) {
		t.Fatalf("counted %d", got)
	}
	if got := a.acks(); !slices.Equal(got, []uint32{2}) {
		t.Errorf("acknowledged %d", got)
	}
	if got, _ := b.count(fromB, 5, all); !slices.Equal(got, []uint32{1}) {
		t.Fatalf("counted %d", got)
	}
	if got := a.acks(); !slices.Equal(got, []uint32{1}) {
		t.Errorf("acknowledged %d", got)
	}
	ids := map[uint64]bool{}
	for _, p := range []*link.Path{toB, toC, fromB, fromC} {
		ids[p.Route.(*route).rings.Load().id] = true
	}
	if len(ids) != 4 || ids[0] {
		t.Errorf("ids %v", ids)
	}
}

// TestCountsOfAnEndedReceiver: what a receiver has counted before its device was closed arrives. The ring set is
// forgotten then.
func TestCountsOfAnEndedReceiver(t *testing.T) {
	a, b, there, back := between(t)
	for i := range uint32(3) {
		a.ordered(there, 7, 8, i)
	}
	for range 3 * recvMax {
		b.put(back, 5, 8, 0)
	}
	b.p.Send(b.tx)
	b.count(back, 5, func(psn uint32) bool { return psn != 1 })
	a.ordered(there, 7, 8, 3)
	b.Close()
	<-a.lost
	var got []uint32
	for len(got) == 0 || len(a.rx.Packets) > 0 {
		a.now += int64(time.Second) // the other link is read
		got = append(got, a.acks()...)
	}
	if !slices.Equal(got, []uint32{0, 2}) {
		t.Errorf("acknowledged %d", got)
	}
	for i, want := range []int{1, 1, 0} { // the end may have come after a Recv has looked into the rings
		if n := len(a.p.counting); n != want {
			t.Errorf("after %d empty Recvs: %d ring sets, want %d", i, n, want)
		}
		a.now += int64(time.Second)
		a.take()
	}
}

// TestForeignCountedRequests: requests from addresses that the sender may not use are dropped, and not acknowledged.
func TestForeignCountedRequests(t *testing.T) {
	d := &testDirectory{alien: map[netip.Addr]bool{addrC: true}}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	there, back := a.ready(addrB, 7), b.ready(addrA, 5)
	foreign := *there
	foreign.Src = addrC
	for i := range uint32(12) {
		from := there
		if i%4 < 2 { // two share a line
			from = &foreign
		}
		a.ordered(from, 7, 8, i)
	}
	want := []uint32{2, 3, 6, 7, 10, 11}
	if got, _ := b.count(back, 5, all); !slices.Equal(got, want) {
		t.Errorf("counted %d", got)
	}
	if got := a.acks(); !slices.Equal(got, want) {
		t.Errorf("acknowledged %d", got)
	}
}

// TestMalformedCountedRequests: those that are no packets are not acknowledged, and a batch has room for a limited
// number of them.
func TestMalformedCountedRequests(t *testing.T) {
	a, b, there, back := between(t)
	a.ordered(there, 7, 8, 0)
	for i := range uint32(99) {
		place, _ := a.p.PlaceCounted(there, 7, 20, link.Ack{From: a, PSN: i + 1, Life: 5 + (i+1)%2})
		clear(place)
		place[0] = 0xFF // no opcode
	}
	a.p.Publish()
	a.ordered(there, 7, 8, 100)
	var got []uint32
	b.await("last one", func() bool {
		counted, _ := b.count(back, 5, all)
		got = append(got, counted...)
		return len(got) == 2
	})
	if n := b.p.Counters().RxMalformed; n != 99 {
		t.Errorf("%d malformed packets", n)
	}
	var acks []uint32
	for range 10 {
		acks = append(acks, a.acks()...)
	}
	if want := []uint32{0, 100}; !slices.Equal(got, want) || !slices.Equal(acks, want) {
		t.Errorf("counted %d, acknowledged %d", got, acks)
	}
}

// TestOneQPIsNotCounted: requests are counted as long as several QPs send in turn.
func TestOneQPIsNotCounted(t *testing.T) {
	a, b, there, back := between(t)
	send := func(n int, life func(i int) uint32) (counted, others int) {
		for i := range n {
			place, _ := a.p.PlaceCounted(there, 7, wire.BTHLen, link.Ack{From: a, PSN: uint32(i), Life: life(i)})
			wire.BTH(place).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 7, uint32(i), 0)
		}
		a.p.Publish()
		for counted+others < n {
			got, k := b.count(back, 5, all)
			counted, others = counted+len(got), others+k
		}
		for range 10 {
			a.take()
		}
		return counted, others
	}
	for _, c := range []struct {
		name          string
		life          func(i int) uint32
		counted, rest int
	}{
		{"one", func(int) uint32 { return 5 }, 1 + mixedTurns, 99 - mixedTurns},
		{"the same", func(int) uint32 { return 5 }, 0, 100},
		{"two", func(i int) uint32 { return 6 + uint32(i)%2 }, 100, 0},
		{"four of each", func(i int) uint32 { return 10 + uint32(i/4)%3 }, 100, 0},
		{"fifty of each", func(i int) uint32 { return 20 + uint32(i)/50 }, 2 * (1 + mixedTurns), 98 - 2*mixedTurns},
	} {
		if counted, others := send(100, c.life); counted != c.counted || others != c.rest {
			t.Errorf("%s: %d and %d, want %d counted", c.name, counted, others, c.counted)
		}
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	a, b, there, back := between(t)
	step := func() {
		for i := range uint32(16) {
			a.ordered(there, 7, 8, i)
		}
		for _, p := range b.take() {
			p.Counter.Count(back, 5)
		}
		b.p.Publish()
		if a.take(); len(a.rx.Acks) != 16 {
			t.Fatalf("%d acknowledgements", len(a.rx.Acks))
		}
	}
	step()
	if n := testing.AllocsPerRun(100, step); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
