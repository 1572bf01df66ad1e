package shm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

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

// TestFlowWithTheNumberOfTheLastPacket checks that a short packet of a new flow, whose number was that of the packet
// before it, does not extend the record of its flow.
func TestFlowWithTheNumberOfTheLastPacket(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	a.ready(addrB, 7)
	put := func(flow int) {
		t.Helper()
		path := a.path(addrB, 7)
		path.TClass, path.HopLimit = uint8(flow), uint8(1+flow/256)
		if !a.put(path, 7, 4, uint32(flow)) {
			t.Fatalf("no place for flow %d", flow)
		}
	}
	for i := range maxFlows {
		put(i)
		a.p.Send(a.tx)
		b.next()
	}
	put(0)
	put(maxFlows) // it gets the number of the oldest flow, 0
	a.p.Send(a.tx)
	got := b.next()
	if len(got) != 2 {
		t.Fatalf("%d packets, want 2; %+v", len(got), b.p.Counters())
	}
	for i, flow := range []int{0, maxFlows} {
		if p := got[i]; p.HopLimit != uint8(1+flow/256) || binary.LittleEndian.Uint32(p.Payload()) != uint32(flow) {
			t.Errorf("packet %d: hop limit %d, payload %x; want flow %d", i, p.HopLimit, p.Payload(), flow)
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

// TestPairs: two short packets of a batch share a line, also if their paths are only equal, and arrive as two packets
// in order.
func TestPairs(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	a.put(path, 7, 8, 0) // the receiver gets to know the flow
	a.p.Send(a.tx)
	b.next()
	ring := &path.Route.(*route).rings.Load().tx[0][0].prod
	equal := *path
	paths := []*link.Path{path, &equal, &equal, path, path}
	for n, lines := range map[int]int{8: 3, 40: 5} { // payload, and lines of five packets
		for i, path := range paths {
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

// TestOwnAddresses checks that packets for another address than the link's are dropped, and that a link whose directory
// follows nothing takes new addresses.
func TestOwnAddresses(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 7)
	for _, c := range []struct {
		own     netip.Addr
		foreign uint64
	}{{netip.AddrFrom16(addrB.As16()), 0}, {addrC, 1}} {
		if err := b.SetAddrs([]netip.Addr{c.own}); err != nil {
			t.Fatal(err)
		}
		fresh := *path // a flow of its own, whose addresses are checked again
		fresh.TClass = uint8(c.foreign) + 1
		a.put(&fresh, 7, 8, 1)
		a.p.Send(a.tx)
		b.await("packet", func() bool { return len(b.take()) == 1 || b.p.Counters().ShmForeign > 0 })
		if got := b.p.Counters().ShmForeign; got != c.foreign || len(b.rx.Packets) != int(1-c.foreign) {
			t.Errorf("own address %v: %d packets, %d foreign ones", c.own, len(b.rx.Packets), got)
		}
	}
}

// TestCapabilities checks that a port offers its rings beside what the other link's port can do.
func TestCapabilities(t *testing.T) {
	var d testDirectory
	a := d.open(t, addrA, 1)
	if c := a.p.Capabilities(); c.Direct != link.Direct(a.p) || c.ByReference != link.ByReference(a.p) {
		t.Errorf("%+v", c)
	}
}

// TestWaiting checks whether a port that is about to sleep sees packets in its rings.
func TestWaiting(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 2)
	path := a.ready(addrB, 8)
	for i, p := range b.ports {
		if p.waiting() {
			t.Errorf("port %d: packets in empty rings", i)
		}
	}
	a.put(path, 8, 8, 1)
	a.p.Send(a.tx)
	if to := b.ports[8%2]; !to.waiting() || b.ports[1].waiting() {
		t.Error("the packet of port 0 waits at port 1, or nowhere")
	}
	b.next()
	if b.take(); b.p.waiting() {
		t.Error("a packet that was received waits")
	}
}

// TestWaitingSeesPacketsOfAPortThatIsNeverEmpty checks that a port which always finds packets, and so need not store
// its position for each, stores it often enough: a position that is a whole ring behind would show the wrong record.
func TestWaitingSeesPacketsOfAPortThatIsNeverEmpty(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 2)
	path := a.ready(addrB, 8)
	l := (*b.in.Load())[0]
	size := l.ring
	for n := 0; n < 3*size; n += 1024 {
		a.put(path, 8, 1000, 1)
		a.p.Send(a.tx)
		b.next()
		r := &l.rx[b.p.index][a.p.index]
		if at, freed := r.seen.Load(), a.p.routeOf(path, 8).ring(0, 8).prod.Freed(); at < freed {
			t.Fatalf("after %d bytes the stored position %d is in the space of the sender, up to %d", n, at, freed)
		}
	}
	a.put(path, 8, 8, 1)
	a.p.Send(a.tx)
	if !b.p.waiting() {
		t.Error("a packet that was not received does not wait")
	}
}

// TestSuccessorOfADeadProcess checks that a path to a process that has the name of a dead one leads to the new process,
// also before this end has noticed the death.
func TestSuccessorOfADeadProcess(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	own, peer := socketPair()
	defer own.Close()
	raw, err := own.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	dead := &txRings{conn: own, raw: raw}
	if !dead.alive() {
		t.Error("a living process is not alive")
	}
	if err := sendFrame(peer, frame{kind: frameShared}); err != nil { // is unread when the process ends
		t.Fatal(err)
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	a.mu.Lock()
	a.processes[addrB.String()] = &process{rings: dead}
	a.mu.Unlock()
	path := a.ready(addrB, 7)
	if path.Route.(*route).rings.Load() == dead || a.Lost(path) != link.NotLost {
		t.Fatal("the path leads to the dead process")
	}
	if !a.put(path, 7, 8, 1) {
		t.Fatal("no place")
	}
	a.p.Send(a.tx)
	b.next()
}
