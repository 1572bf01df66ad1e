package shm

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestLongBatchIsPublishedEarly checks that the receiver gets the first packets of a long batch while the sender
// writes the last, and answers some before it receives more.
func TestLongBatchIsPublishedEarly(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	for i := range chunkPackets {
		a.put(path, 7, 8, uint32(i))
	}
	if got := b.take(); len(got) != 0 {
		t.Errorf("%d packets before there are enough", len(got))
	}
	a.put(path, 7, 8, chunkPackets)
	if got := b.next(); len(got) != chunkPackets {
		t.Errorf("%d packets before Send, want %d", len(got), chunkPackets)
	}
	for i := range 2*recvMax - 1 {
		a.put(path, 7, 8, uint32(chunkPackets+1+i))
	}
	a.p.Send(a.tx)
	for range 2 {
		if got := b.next(); len(got) != recvMax {
			t.Errorf("%d packets at once, want %d", len(got), recvMax)
		}
	}
}

// TestSendersAreServedInTurn checks that senders that always have more than one Recv takes are served in turn:
// processes, and the ports of one of them.
func TestSendersAreServedInTurn(t *testing.T) {
	var d testDirectory
	a, b, c := d.open(t, addrA, 2), d.open(t, addrB, 1), d.open(t, addrC, 1)
	fromA, fromC := a.ready(addrB, 7), c.ready(addrB, 7)
	second := side{Link: a.Link, tb: t, p: a.ports[1], tx: link.NewTxBatch(256, 64<<10)}
	second.tx.Direct, second.tx.ByReference = second.p, second.p
	const numbers = 1 << 16 // of each sender
	senders := []struct {
		s    *side
		path *link.Path
	}{{a, fromA}, {&second, fromA}, {c, fromC}}
	for round := range 8 {
		for k, s := range senders {
			for i := range 3 * recvMax {
				s.s.put(s.path, 7, 8, uint32(k*numbers+round*3*recvMax+i))
			}
			s.s.p.Send(s.s.tx)
		}
		came := map[uint32]bool{}
		for range 4 { // two processes with two ports at most
			for _, p := range b.next() {
				came[binary.LittleEndian.Uint32(p.Payload())/numbers] = true
			}
		}
		if len(came) != len(senders) {
			t.Fatalf("round %d: of %d senders only %v were received", round, len(senders), came)
		}
	}
}

// TestFullRing checks that packets wait for a full ring while its receiver reads, and are dropped if it does not. Those
// of UC, which nobody sends again, wait longer.
func TestFullRing(t *testing.T) {
	t.Run("sent again", func(t *testing.T) { testFullRing(t, false, fullTimeout) })
	t.Run("in order", func(t *testing.T) { testFullRing(t, true, fullOnceTimeout) })
}

func testFullRing(t *testing.T, inOrder bool, limit time.Duration) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	path.InOrder = inOrder
	n, begin := 0, time.Now()
	for ; a.put(path, 7, 4096, uint32(n)); n++ {
		a.p.Send(a.tx)
		begin = time.Now() // before the ring is found full, from when on its limit counts
	}
	if n < defaultRing/4300 || n > defaultRing/4096 {
		t.Errorf("%d packets of 4096 bytes in a ring of %d", n, defaultRing)
	}
	if c := a.p.Counters(); c.TxDropped != 0 {
		t.Errorf("%d lost", c.TxDropped)
	}
	a.await("loss", func() bool { return a.put(path, 7, 4096, 0) })
	if took := time.Since(begin); took < limit {
		t.Errorf("lost after %v", took)
	}
	a.p.Send(a.tx)
	if c := a.p.Counters(); c.TxDropped != 1 {
		t.Errorf("%d lost", c.TxDropped)
	}
	for got := 0; got < n; {
		for _, p := range b.next() {
			if seq := wire.BTH(p.Data).PSN(); int(seq) != got {
				t.Fatalf("packet %d instead of %d", seq, got)
			}
			got++
		}
	}
	b.take()
	if !a.put(path, 7, 4096, 0) {
		t.Error("no place in an empty ring")
	}
	a.p.Send(a.tx)
	b.next()
}

// fill puts packets into the ring of a path until it is full.
func (s *side) fill(path *link.Path) {
	s.tb.Helper()
	for s.put(path, 7, 4096, 0) {
		s.p.Send(s.tx)
	}
}

// TestPausedReceiver checks that packets wait for a receiver that has no core for a tenth of a second. With many QPs
// the loss of their packets in each pause used up the retries of some.
func TestPausedReceiver(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.fill(path)
	const pause = 100 * time.Millisecond
	begin := time.Now()
	for time.Since(begin) < pause {
		a.put(path, 7, 4096, 0)
	}
	if c := a.p.Counters(); c.TxDropped != 0 && time.Since(begin) < 2*pause { // this end may have had no core either
		t.Errorf("%d packets lost during a pause of %v", c.TxDropped, pause)
	}
	b.take()
}

// TestWakeUps checks that a port that sleeps is woken once for any number of packets, and one that does not sleep,
// never.
func TestWakeUps(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	send := func(n int) {
		for i := range n {
			a.put(path, 7, 8, uint32(i))
			a.p.Send(a.tx)
		}
	}
	send(3)
	b.next()
	b.take()
	woken := make(chan struct{})
	sleep := func() {
		before := b.p.sleep.Load()
		go func() { b.p.Wait(-1); woken <- struct{}{} }()
		b.await("sleep", func() bool { return b.p.sleep.Load() == before+1 })
	}
	sleep()
	rings := path.Route.(*route).rings.Load().tx[0][0]
	wakes, wake := 0, rings.wake
	rings.wake = func(fd uintptr) { wakes++; wake(fd) }
	send(10)
	<-woken
	if wakes != 1 {
		t.Errorf("woken %d times", wakes)
	}
	if got := b.p.sleep.Load(); rings.woken != got-1 {
		t.Errorf("woken from sleep %d instead of %d", rings.woken, got-1)
	}
	b.next()
	// A port with packets does not sleep.
	send(1)
	before := b.inner(0).waits
	b.p.Wait(-1)
	if b.inner(0).waits != before {
		t.Error("asleep with a packet in a ring")
	}
	if wakes != 1 {
		t.Errorf("a port that is awake was woken %d times", wakes-1)
	}
}

// TestBothWays checks that the other link is read while rings are busy, more often if it has packets, and at once
// after a sleep.
func TestBothWays(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	inner := b.inner(0)
	b.take()
	const rounds = 1000
	for _, c := range []struct {
		more  int
		every int64
	}{{0, innerLate}, {rounds, innerSoon}, {0, innerLate}} {
		inner.more = c.more
		asked := inner.recvs
		for i := range rounds {
			a.put(path, 7, 8, uint32(i))
			a.p.Send(a.tx)
			b.take() // a microsecond each
		}
		n := inner.recvs - asked
		if want := rounds * 1000 / int(c.every); n < want/2 || n > 2*want {
			t.Errorf("asked %d times in %d µs; want about %d", n, rounds, want)
		}
	}
	asked := inner.recvs
	b.p.Wake()
	b.p.Wait(0)
	b.take()
	if inner.recvs != asked+1 {
		t.Error("not asked after a sleep")
	}
	asked = inner.recvs
	b.now += ringsQuiet
	for range 10 {
		b.take()
	}
	if inner.recvs != asked+10 {
		t.Errorf("asked %d of 10 times when the rings are quiet", inner.recvs-asked)
	}
}

func TestLossOfTheReceiver(t *testing.T) {
	var d testDirectory
	a, b, c := d.open(t, addrA, 1), d.open(t, addrB, 1), d.open(t, addrC, 1)
	left, died, lives := a.ready(addrB, 7), a.ready(addrC, 7), a.ready(addrA, 7)
	other := a.path(netip.MustParseAddr("203.0.113.9"), 7)
	b.Close()
	<-a.lost
	// The state after the end of a process.
	for _, l := range *c.in.Load() {
		l.conn.Close()
	}
	<-a.lost
	for path, want := range map[*link.Path]link.Loss{left: link.PeerLeft, died: link.PeerDied, lives: link.NotLost,
		other: link.NotLost} {
		if got := a.Lost(path); got != want {
			t.Errorf("%v: %v instead of %v", path.Dst, got, want)
		}
	}
	if !a.put(died, 7, 8, 1) {
		t.Error("no place on the other link")
	}
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestLossOfTheSender checks that packets that a process sent before it ended are received.
func TestLossOfTheSender(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 2)
	path := a.ready(addrB, 8)
	for i := range 200 {
		a.put(path, 8, 8, uint32(i))
	}
	a.p.Send(a.tx)
	a.Close()
	b.await("end", func() bool { return (*b.in.Load())[0].over.Load() })
	got := 0
	for got < 200 {
		got += len(b.next())
	}
	for _, p := range b.ports {
		b.p = p
		b.take()
	}
	if n := len(*b.in.Load()); n != 0 {
		t.Errorf("%d ring sets are left", n)
	}
	if b.p.waiting() {
		t.Error("something to wait for")
	}
}

// TestLossOfTheSenderAtABusyReceiver checks that a receiver gives back the memory of processes that end while another
// one sends all the time, and has received what they sent before.
func TestLossOfTheSenderAtABusyReceiver(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	b.await("ring set", func() bool { return len(*b.in.Load()) == 1 })
	for i := range uint32(5) {
		c := d.open(t, addrC, 1)
		c.put(c.ready(addrB, 7), 7, 8, i)
		c.p.Send(c.tx)
		c.Close()
		b.await("end", func() bool { return (*b.in.Load())[1].over.Load() })
		last := 0
		for range 10 {
			a.put(path, 7, 8, 100)
			a.p.Send(a.tx)
			for _, p := range b.next() {
				if wire.BTH(p.Data).PSN() == i {
					last++
				}
			}
		}
		if n := len(*b.in.Load()); n != 1 || last != 1 {
			t.Errorf("after %d processes have ended there are %d ring sets, and of the last packet %d", i+1, n, last)
		}
	}
}

// TestRoutesToEndedProcesses checks that a sender of datagrams does not keep the memory that it shared with processes
// that have ended, however many of them come and go.
func TestRoutesToEndedProcesses(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	path := &link.Path{Src: addrA, Dst: addrB}
	for qpn := range uint32(4 * someRoutes) {
		b := d.open(t, addrB, 1)
		a.await("ring set", func() bool { return a.p.routeOf(path, qpn).rings.Load() != nil })
		b.Close()
		<-a.lost
	}
	dead := 0
	for _, r := range a.p.routes {
		if !r.fresh() {
			dead++
		}
	}
	if dead > someRoutes {
		t.Errorf("%d routes to processes that have ended", dead)
	}
}

func TestPlaceDoesNotAllocate(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	ud := &link.Path{Src: addrA, Dst: addrB}
	a.await("place", func() bool { return a.put(ud, 7, 8, 0) })
	a.p.Send(a.tx)
	b.next()
	if n := testing.AllocsPerRun(100, func() {
		for range 8 {
			a.put(path, 7, 8, 1)
			a.put(path, 7, 2000, 1)
			a.put(ud, 7, 8, 1)
		}
		a.p.Send(a.tx)
		b.take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestWakingDoesNotAllocate checks that waking a port, which is part of sending, does not allocate.
func TestWakingDoesNotAllocate(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	b.p.sleep.Add(1)
	const rounds = 100
	if n := testing.AllocsPerRun(rounds, func() {
		b.p.sleep.Add(2) // another sleep
		a.put(path, 7, 8, 1)
		a.p.Send(a.tx)
		b.take()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := path.Route.(*route).rings.Load().tx[0][0].woken; got != b.p.sleep.Load() {
		t.Errorf("woken from sleep %d, not from %d", got, b.p.sleep.Load())
	}
}

func BenchmarkOneWay(b *testing.B) {
	var d testDirectory
	x, y := d.open(b, addrA, 1), d.open(b, addrB, 1)
	path := x.ready(addrB, 7)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		x.put(path, 7, 8, uint32(i))
		x.p.Send(x.tx)
		y.take()
	}
}

// TestStuck checks how long a full ring may have packets of which kind before they are dropped.
func TestStuck(t *testing.T) {
	var d testDirectory
	a, _ := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.fill(path)
	r := path.Route.(*route).rings.Load().tx[0][0]
	for i, c := range []struct { // far from the other limits, since the machine may be slow
		path  link.Path
		since time.Duration
		want  bool
	}{
		{link.Path{AnyOrder: true}, fullAnyTimeout + 1, true},
		{link.Path{}, fullAnyTimeout + 1, false},
		{link.Path{}, fullTimeout + 1, true},
		{link.Path{InOrder: true}, fullTimeout + 1, false},
		{link.Path{InOrder: true}, fullOnceTimeout + 1, true},
	} {
		since := time.Now().Add(-c.since)
		r.since, r.freed = since, r.prod.Freed()
		if got := r.stuck(&c.path); got != c.want {
			t.Errorf("%d: stuck after %v: %t", i, time.Since(since), got)
		}
	}
}

// TestRingIsUsedAgain checks that the places of received packets are free for new ones.
func TestRingIsUsedAgain(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	for i := range 3 * defaultRing / 4096 {
		if !a.put(path, 7, 4096, uint32(i)) {
			t.Fatalf("no place for packet %d", i)
		}
		a.p.Send(a.tx)
		if got := b.next(); len(got) != 1 || wire.BTH(got[0].Data).PSN() != uint32(i) {
			t.Fatalf("packet %d: %d packets", i, len(got))
		}
	}
}

// TestTurnPassesQuietSenders checks that the port reads the first ring set after the last one.
func TestTurnPassesQuietSenders(t *testing.T) {
	var d testDirectory
	a, b, c := d.open(t, addrA, 1), d.open(t, addrB, 1), d.open(t, addrC, 1)
	fromA := a.ready(addrB, 7)
	c.ready(addrB, 7)
	b.await("two ring sets", func() bool { return len(*b.in.Load()) == 2 })
	for range 2 * recvMax {
		a.put(fromA, 7, 8, 0)
	}
	a.p.Send(a.tx)
	for got := 0; got < 2*recvMax; {
		got += len(b.next())
	}
	if b.p.turn != 1 && b.p.turn != 2 {
		t.Errorf("turn %d after a full batch", b.p.turn)
	}
	b.p.turn = 1 // whichever ring set is first
	a.put(fromA, 7, 8, 0)
	a.p.Send(a.tx)
	if got := b.next(); len(got) != 1 {
		t.Errorf("%d packets", len(got))
	}
}

// TestDecoratedFullRing checks that a batch of a decorator, which cannot wait, loses packets that find no place, and
// counts them.
func TestDecoratedFullRing(t *testing.T) {
	var d testDirectory
	a, _ := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.fill(path)
	a.tx.Direct = nil
	for range 2 {
		a.put(path, 7, 4096, 0)
	}
	a.p.Send(a.tx)
	if c := a.p.Counters(); c.TxDropped != 2 {
		t.Errorf("%d packets were dropped", c.TxDropped)
	}
}
