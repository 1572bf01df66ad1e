package shm

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

func TestPacketsOfAllLengths(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	path.TClass, path.HopLimit = 8, 3
	for number, n := range []int{0, 4, 8, 40, 44, 48, 252, 496, 500, 504, 1024, 4096} {
		if !a.put(path, 7, n, uint32(number)) {
			t.Fatalf("no place for %d bytes", n)
		}
		a.p.Send(a.tx)
		got := b.next()
		if len(got) != 1 {
			t.Fatalf("%d packets", len(got))
		}
		p := got[0]
		if p.Src != addrA || p.Dst != addrB || p.TClass != 8 || p.HopLimit != 3 || p.Len() != wire.BTHLen+n {
			t.Errorf("%d bytes: %v %v %d %d, length %d", n, p.Src, p.Dst, p.TClass, p.HopLimit, p.Len())
		}
		data := p.Payload()
		if len(data) != n || n > 4 && (data[0] != byte(number) || data[n-1] != byte(number+n-1)) {
			t.Errorf("%d bytes: %d came", n, len(data))
		}
		if split := p.Body != nil; split != (wire.BTHLen+n > smallPacket) {
			t.Errorf("%d bytes: in two pieces: %v", n, split)
		}
		if whole := p.Append(nil); len(whole) != wire.BTHLen+n || !bytes.Equal(wire.Packet(whole).Payload(), data) {
			t.Errorf("%d bytes: in one piece the content differs", n)
		}
	}
	if c := a.p.Counters(); c.ShmTxPackets != 12 || c.TxPackets != 12 || c.TxDropped != 0 {
		t.Errorf("sent: %+v", c)
	}
	if c := b.p.Counters(); c.ShmRxPackets != 12 || c.RxPackets != 12 || c.RxMalformed != 0 {
		t.Errorf("received: %+v", c)
	}
	if n := len(a.inner(0).sent); n != 0 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestPad checks a packet with pad bytes whose payload stays in the ring.
func TestPad(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	pkt := a.tx.Alloc(path, 7, wire.BTHLen+1000)
	clear(pkt)
	wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 3, 0xFFFF, 7, 1, 0)
	a.p.Send(a.tx)
	p := b.next()[0]
	if len(p.Payload()) != 997 || p.Len() != wire.BTHLen+1000 || wire.BTH(p.Data).Pad() != 0 {
		t.Errorf("payload %d, length %d, pad %d", len(p.Payload()), p.Len(), wire.BTH(p.Data).Pad())
	}
	if whole := p.Append(nil); wire.BTH(whole).Pad() != 3 || len(wire.Packet(whole).Payload()) != 997 {
		t.Errorf("in one piece: % x", whole[:12])
	}
}

// TestPorts checks that each pair of ports has its ring, and that a packet arrives at the port of its QPN.
func TestPorts(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 3), d.open(t, addrB, 2)
	path := a.ready(addrB, 7)
	for i, p := range a.ports {
		a.p, a.tx.Direct, a.tx.ByReference = p, p, p
		for qpn := range uint32(4) {
			a.put(path, 100+qpn, 8, uint32(i)<<8|qpn)
		}
		p.Send(a.tx)
	}
	for j, p := range b.ports {
		b.p = p
		got := b.next()
		if len(got) != 6 {
			t.Errorf("port %d: %d packets", j, len(got))
		}
		for _, pkt := range got {
			if qpn := wire.BTH(pkt.Data).DestQPN(); int(qpn%2) != j {
				t.Errorf("port %d: QP %d", j, qpn)
			}
		}
	}
}

// TestNumberedPorts checks ports with ranges of QP numbers.
func TestNumberedPorts(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 2), d.open(t, addrB, 3)
	b.Link.Link.(*fakeLink).ranges = true
	path := a.ready(addrB, 7)
	for j := range uint32(3) {
		for qpn := range uint32(4) {
			a.put(path, j<<16+qpn, 8, 1)
		}
	}
	a.p.Send(a.tx)
	for j, p := range b.ports {
		b.p = p
		got := b.next()
		if len(got) != 4 {
			t.Errorf("port %d: %d packets", j, len(got))
		}
		for _, pkt := range got {
			if qpn := wire.BTH(pkt.Data).DestQPN(); int(qpn>>16) != j {
				t.Errorf("port %d: QP %#x", j, qpn)
			}
		}
	}
}

// TestFlows checks that paths of equal content share a flow, and that 300 more flows replace old ones, which are sent
// again.
func TestFlows(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.ready(addrB, 7)
	for round := range 3 {
		for class := range 300 {
			path := a.path(addrB, 7)
			path.TClass, path.FlowLabel = uint8(class), uint32(class)
			path.HopLimit = uint8(1 + class/256)
			if !a.put(path, 7, 8, uint32(class)) {
				t.Fatalf("round %d: no place for %d", round, class)
			}
			a.p.Send(a.tx)
			p := b.next()[0]
			if p.TClass != uint8(class) || p.HopLimit != uint8(1+class/256) {
				t.Fatalf("round %d: class %d, hopLimit %d instead of %d", round, p.TClass, p.HopLimit, class)
			}
		}
	}
}

func TestOtherHosts(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	far := netip.MustParseAddr("203.0.113.9")
	a.put(a.path(far, 7), 7, 8, 1)
	a.p.Send(a.tx)
	a.put(&link.Path{Src: a.addr, Dst: far}, 7, 8, 1)                              // without a route: UD
	a.put(&link.Path{Src: a.addr, Dst: netip.MustParseAddr("239.1.1.1")}, 7, 8, 1) // multicast
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 3 {
		t.Errorf("%d packets went over the other link", n)
	}
	if d.dials != 0 {
		t.Errorf("%d connections", d.dials)
	}
}

func TestNoProcessThere(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	path := &link.Path{Src: a.addr, Dst: addrB}
	if a.Prepare(path, 7) {
		t.Error("a process was found")
	}
	if !a.put(path, 7, 8, 1) {
		t.Error("no place")
	}
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestPacketsWaitForRings checks that packets wait for the handshake, and do not go over the other link meanwhile.
func TestPacketsWaitForRings(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := &link.Path{Src: a.addr, Dst: addrB}
	if !a.Prepare(path, 7) {
		t.Error("no process was found")
	}
	if a.put(path, 7, 8, 1) {
		t.Error("a place before the rings are ready")
	}
	close(d.slow)
	a.await("place", func() bool { return a.put(path, 7, 8, 1) })
	a.p.Send(a.tx)
	b.next()
}

// TestSlowNeighbour checks that a process that does not answer delays packets only for a short time.
func TestSlowNeighbour(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	a.hold = holdBack
	path := a.path(addrB, 7)
	begin := time.Now()
	for !a.put(path, 7, 8, 1) {
		time.Sleep(time.Millisecond)
	}
	if took := time.Since(begin); took < holdBack/2 {
		t.Errorf("delayed by only %v", took)
	}
	close(d.slow)
}

// TestBurstOfDatagrams checks that many datagrams wait for a handshake, but not for long.
func TestBurstOfDatagrams(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	a.hold = time.Hour
	path := &link.Path{Src: a.addr, Dst: addrB, AnyOrder: true}
	sent := 0
	for sent < 1000 && a.put(path, 7, 8, 1) {
		sent++
	}
	if sent != earlyDatagrams {
		t.Errorf("%d datagrams did not wait, must be %d", sent, earlyDatagrams)
	}
	a.hold = 0
	if !a.put(path, 7, 8, 1) {
		t.Error("a datagram waits longer than the limit")
	}
	close(d.slow)
}

// TestSlowNeighbourAnyOrder checks that the first datagrams do not wait for a handshake: they go over the other link.
func TestSlowNeighbourAnyOrder(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.hold = time.Hour
	path := &link.Path{Src: a.addr, Dst: addrB, AnyOrder: true}
	if !a.put(path, 7, 8, 1) {
		t.Fatal("a datagram waits for the handshake")
	}
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets over the other link", n)
	}
	close(d.slow)
	a.await("rings", func() bool { return a.p.routeOf(path, 7).state.Load() == routeRings })
	if !a.put(path, 7, 8, 2) {
		t.Fatal("no place in the ring")
	}
	a.p.Send(a.tx)
	b.next()
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets over the other link", n)
	}
}

// TestSlowNeighbourInOrder checks that packets that must stay in order wait for the end of the handshake: UC does not
// retransmit.
func TestSlowNeighbourInOrder(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.hold = time.Nanosecond
	path := &link.Path{Src: a.addr, Dst: addrB, InOrder: true}
	a.Prepare(path, 7)
	if time.Sleep(time.Millisecond); a.put(path, 7, 8, 1) {
		t.Error("a place before the rings are ready")
	}
	close(d.slow)
	a.await("place", func() bool { return a.put(path, 7, 8, 1) })
	a.p.Send(a.tx)
	b.next()
	if n := len(a.inner(0).sent); n != 0 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestDecoratedSlowNeighbour checks that packets of a decorator, which cannot wait, go over the other link during the
// handshake.
func TestDecoratedSlowNeighbour(t *testing.T) {
	d := testDirectory{slow: make(chan struct{})}
	a := d.open(t, addrA, 1)
	d.open(t, addrB, 1)
	path := a.path(addrB, 7)
	a.tx.Direct = nil
	a.put(path, 7, 600, 1)
	a.p.Send(a.tx)
	if n := len(a.inner(0).sent); n != 1 {
		t.Errorf("%d packets went over the other link", n)
	}
	close(d.slow)
}

// TestWithoutRoute checks packets of QPs without a path, which are UD ones, also after the process has changed.
func TestWithoutRoute(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := &link.Path{Src: addrA, Dst: addrB}
	send := func() {
		t.Helper()
		a.await("place", func() bool { return a.put(path, 9, 8, 1) })
		a.p.Send(a.tx)
	}
	send()
	b.next()
	b.Close()
	<-a.lost
	b = d.open(t, addrB, 1)
	send()
	b.next()
	if n := len(a.inner(0).sent); n != 0 {
		t.Errorf("%d packets went over the other link", n)
	}
}

// TestPairs: two short packets of a batch share a line, and arrive as two packets in order.
func TestPairs(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.put(path, 7, 8, 0) // the receiver gets to know the flow
	a.p.Send(a.tx)
	b.next()
	ring := path.Route.(*route).rings.Load().tx[0][0].prod
	for n, lines := range map[int]int{8: 3, 40: 5} { // payload, and lines of five packets
		for i := range 5 {
			a.put(path, 7, n, uint32(i))
		}
		if got := ring.Unpublished(); got != lines*line {
			t.Errorf("5 packets with %d bytes: %d bytes of the ring, want %d lines", n, got, lines)
		}
		a.p.Send(a.tx)
		got := b.next()
		if len(got) != 5 {
			t.Fatalf("%d packets", len(got))
		}
		for i := range got {
			if psn := wire.BTH(got[i].Data).PSN(); psn != uint32(i) || len(got[i].Payload()) != n {
				t.Errorf("packet %d: PSN %d, %d bytes", i, psn, len(got[i].Payload()))
			}
		}
	}
}

// TestDecorated checks that a batch of a decorator, whose packets were not placed, goes through rings.
func TestDecorated(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	far := a.path(netip.MustParseAddr("203.0.113.9"), 7)
	a.tx.Direct = nil
	for i := range recvMax {
		a.put(path, 7, 600, uint32(i))
		a.put(far, 7, 8, uint32(i))
	}
	a.p.Send(a.tx)
	if got := b.next(); len(got) != recvMax {
		t.Errorf("%d packets", len(got))
	}
	if n := len(a.inner(0).sent); n != recvMax {
		t.Errorf("%d packets went over the other link", n)
	}
	if !a.tx.Empty() {
		t.Error("the batch is not empty")
	}
}

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

// TestSelf checks that a process can send to itself.
func TestSelf(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	a.put(a.ready(addrA, 7), 7, 8, 1)
	a.p.Send(a.tx)
	if got := a.next(); len(got) != 1 {
		t.Errorf("%d packets", len(got))
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
	n := 0
	for ; a.put(path, 7, 4096, uint32(n)); n++ {
		a.p.Send(a.tx)
	}
	if n < defaultRing/4300 || n > defaultRing/4096 {
		t.Errorf("%d packets of 4096 bytes in a ring of %d", n, defaultRing)
	}
	if c := a.p.Counters(); c.TxDropped != 0 {
		t.Errorf("%d lost", c.TxDropped)
	}
	begin := time.Now()
	a.await("loss", func() bool { return a.put(path, 7, 4096, 0) })
	if took := time.Since(begin); took < limit/2 {
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
	send(10)
	<-woken
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

// TestLossDuringHandshake checks a process that ends during the handshake, and one that refuses it.
func TestLossDuringHandshake(t *testing.T) {
	for refuses, want := range map[bool]link.Loss{false: link.PeerDied, true: link.NotLost} {
		a, b := (&testDirectory{}).open(t, addrA, 1), &silentDirectory{}
		a.dir = b
		path := a.path(addrB, 7)
		if a.put(path, 7, 8, 1) {
			t.Error("a place before the rings are ready")
		}
		if refuses {
			if _, _, err := expect(b.theirs, frameHello, 0); err != nil {
				t.Fatal(err)
			}
			_ = sendFrame(b.theirs, frame{kind: frameBye})
		}
		b.theirs.Close()
		a.await("place on the other link", func() bool { return a.put(path, 7, 8, 1) })
		if !refuses {
			<-a.lost
		}
		if got := a.Lost(path); got != want {
			t.Errorf("refuses %v: %v", refuses, got)
		}
	}
}

// A silentDirectory is a Directory of one process that sends nothing.
type silentDirectory struct{ theirs *net.UnixConn }

func (*silentDirectory) Owner(netip.Addr, uint32) string { return "x" }
func (d *silentDirectory) Dial(string) (*net.UnixConn, error) {
	mine, theirs := socketPair()
	d.theirs = theirs
	return mine, nil
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

// TestCloseAtTheEndOfAHandshake checks that a ring set whose handshake ends while the link is being closed ends too:
// Close would wait for its receiver.
func TestCloseAtTheEndOfAHandshake(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	h, r := &process{}, &route{}
	h.waiting = []*route{r}
	l, _ := sender(t)
	l.shape = shape{n: 1, m: 1}
	a.Close()
	a.connected(addrB.String(), h, l, routeRings)
	if l.end.Load() == ringsOpen {
		t.Error("the ring set is open")
	}
	if _, err := l.conn.Write([]byte{0}); err == nil {
		t.Error("its socket is open")
	}
}
