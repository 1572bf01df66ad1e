package mem

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/wire"
)

var (
	addrA  = netip.MustParseAddr("10.0.0.1")
	addrB  = netip.MustParseAddr("10.0.0.2")
	addrA6 = netip.MustParseAddr("fd00::1")
	addrB6 = netip.MustParseAddr("fd00::2")
	aToB   = &link.Path{Src: addrA, Dst: addrB}
)

func open(t *testing.T, f *Fabric, ports int, addrs ...netip.Addr) link.Link {
	t.Helper()
	l, err := f.Open(addrs, ports)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// send sends the packets numbered first to first+n-1 to a QPN, 100 bytes each.
func send(p link.Port, path *link.Path, qpn uint32, first, n int) {
	b := link.NewTxBatch(n, n*200)
	for i := range n {
		pkt := b.Alloc(path, 1, 100)
		clear(pkt)
		wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, qpn, uint32(first+i), 0)
		for k := wire.BTHLen; k < len(pkt); k++ {
			pkt[k] = byte(first + i + k)
		}
	}
	p.Send(b)
}

// numbers receives the arrived packets, checks their bytes and returns their numbers.
func numbers(t *testing.T, p link.Port) (ns []int) {
	t.Helper()
	var b link.RxBatch
	for p.Recv(&b) > 0 {
		for _, pkt := range b.Packets {
			n := int(wire.BTH(pkt.Data).PSN())
			if len(pkt.Data) != 100 {
				t.Fatalf("packet %d: %d bytes came, want 100", n, len(pkt.Data))
			}
			for k := wire.BTHLen; k < len(pkt.Data); k++ {
				if pkt.Data[k] != byte(n+k) {
					t.Fatalf("packet %d: byte %d is %#x", n, k, pkt.Data[k])
				}
			}
			ns = append(ns, n)
		}
	}
	return ns
}

func upTo(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func TestDelivery(t *testing.T) {
	for _, addrs := range [][2]netip.Addr{{addrA, addrB}, {addrA6, addrB6}, {addrA, addrA}} {
		f := NewFabric(Config{})
		a := open(t, f, 1, addrs[0])
		b := a
		if addrs[0] != addrs[1] {
			b = open(t, f, 1, addrs[1])
		}
		send(a.Ports()[0], &link.Path{Src: addrs[0], Dst: addrs[1], TClass: 7, HopLimit: 3}, 5, 0, 1)
		var batch link.RxBatch
		if n := b.Ports()[0].Recv(&batch); n != 1 {
			t.Fatalf("%v: %d packets, want 1", addrs, n)
		}
		if p := batch.Packets[0]; p.Src != addrs[0] || p.Dst != addrs[1] || p.TClass != 7 || p.HopLimit != 3 {
			t.Errorf("%v: got %+v", addrs, p)
		}
		send(a.Ports()[0], &link.Path{Src: addrs[0], Dst: addrs[1]}, 5, 0, 1000)
		if got := numbers(t, b.Ports()[0]); !reflect.DeepEqual(got, upTo(1000)) {
			t.Errorf("%v: %d packets came, or not in order: %v", addrs, len(got), got)
		}
	}
}

func TestShards(t *testing.T) {
	f := NewFabric(Config{})
	a, b := open(t, f, 1, addrA), open(t, f, 3, addrB)
	for qpn := range 9 {
		send(a.Ports()[0], aToB, uint32(qpn), qpn, 1)
	}
	for i, p := range b.Ports() {
		if got, want := numbers(t, p), []int{i, i + 3, i + 6}; !reflect.DeepEqual(got, want) {
			t.Errorf("port %d got QPNs %v, want %v", i, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	f := NewFabric(Config{})
	a := open(t, f, 1, addrA)
	for _, addrs := range [][]netip.Addr{nil, {netip.Addr{}}, {netip.IPv4Unspecified()},
		{netip.MustParseAddr("239.0.0.1")}} {
		if _, err := f.Open(addrs, 1); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("Open(%v): %v, want EINVAL", addrs, err)
		}
	}
	if _, err := f.Open([]netip.Addr{addrB, addrA}, 1); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Open with a taken address: %v, want EADDRINUSE", err)
	}
	if err := a.SetAddrs([]netip.Addr{addrB}); err != nil {
		t.Fatal(err)
	}
	open(t, f, 1, addrA) // free again
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, f, 1, addrB)
	if err := a.Close(); err == nil {
		t.Error("a second Close: no error")
	}
}

// TestDrops sends packets that the fabric must not deliver.
func TestDrops(t *testing.T) {
	f := NewFabric(Config{Queue: 10, MTU: 200})
	a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
	p, q := a.Ports()[0], b.Ports()[0]
	send(p, &link.Path{Src: addrA, Dst: netip.MustParseAddr("10.9.9.9")}, 1, 0, 2)
	send(p, &link.Path{Src: addrB, Dst: addrB}, 1, 0, 3)
	big := link.NewTxBatch(1, 1000)
	wire.BTH(big.Alloc(aToB, 1, 200)).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 1, 1, 0)
	p.Send(big)
	send(p, aToB, 1, 0, 15)
	if got := numbers(t, q); !reflect.DeepEqual(got, upTo(10)) {
		t.Errorf("got %v, want a full queue", got)
	}
	f.Cut(addrA, addrB)
	send(p, aToB, 1, 0, 1)
	f.Heal(addrA, addrB)
	send(p, aToB, 1, 7, 1)
	if got := numbers(t, q); !reflect.DeepEqual(got, []int{7}) {
		t.Errorf("after Heal: got %v, want the one sent then", got)
	}
	if got, want := f.Stats(), (Stats{Sent: 19, Delivered: 11, Unknown: 2, Overflow: 5, Cut: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if c := p.Counters(); c.TxDropped != 4 || c.TxPackets != 19 {
		t.Errorf("counters %+v, want 4 dropped and 19 sent", c)
	}
	wrong := link.NewTxBatch(1, 100)
	pkt := wrong.Alloc(aToB, 1, 12)
	wire.BTH(pkt).Put(0xFF, 0, 0xFFFF, 1, 1, 0)
	p.Send(wrong)
	if got := numbers(t, q); got != nil || q.Counters().RxMalformed != 1 {
		t.Errorf("a wrong opcode: got %v, counters %+v", got, q.Counters())
	}
}

// TestCorruption flips one to three bits of every packet. None may be delivered.
func TestCorruption(t *testing.T) {
	for _, path := range []*link.Path{aToB, {Src: addrA6, Dst: addrB6}} {
		f := NewFabric(Config{Seed: 1, Faults: fault.Faults{Corrupt: 1}})
		a, b := open(t, f, 1, addrA, addrA6), open(t, f, 1, addrB, addrB6)
		send(a.Ports()[0], path, 1, 0, 3000)
		var got link.RxBatch
		for b.Ports()[0].Recv(&got) > 0 {
			for _, p := range got.Packets {
				// Byte 4 of the BTH may change on the way: the ICRC does not cover it.
				if p.Data[4] == 0 {
					t.Fatalf("a damaged packet came through: % x", p.Data)
				}
			}
		}
		if s, c := f.Stats(), b.Ports()[0].Counters(); s.Corrupted != 3000 ||
			c.RxICRCErrors+c.RxMalformed+c.RxPackets != 3000 ||
			c.RxPackets > 60 {
			t.Errorf("stats %+v, counters %+v, want all 3000 damaged and next to all found", s, c)
		}
	}
}

// fate describes a run of 2000 packets under every fault in virtual time: the received packets, their order and
// times.
func fate(t *testing.T, seed uint64) string {
	now := int64(0)
	f := NewFabric(Config{Seed: seed, Now: func() int64 { return now }, Bandwidth: 1 << 30, Faults: fault.Faults{
		Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Delay: time.Microsecond, Jitter: time.Microsecond,
	}})
	a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
	log := ""
	for i := 0; i < 2000; i += 10 {
		send(a.Ports()[0], aToB, 1, i, 10)
		now += 100
		log += fmt.Sprintln(now, numbers(t, b.Ports()[0]))
	}
	for {
		at, ok := f.NextDelivery()
		if !ok {
			return log + fmt.Sprintf("%+v", f.Stats())
		}
		if at > now {
			now = at
		}
		log += fmt.Sprintln(now, numbers(t, b.Ports()[0]))
	}
}

func TestSeed(t *testing.T) {
	one, again, other := fate(t, 1), fate(t, 1), fate(t, 2)
	if one != again {
		t.Error("the same seed gave two different runs")
	}
	if one == other {
		t.Error("two seeds gave the same run")
	}
}

func TestVirtualTime(t *testing.T) {
	now := int64(0)
	f := NewFabric(Config{Now: func() int64 { return now }, Faults: fault.Faults{Delay: time.Millisecond}})
	a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
	if _, ok := f.NextDelivery(); ok {
		t.Error("NextDelivery before any packet")
	}
	send(a.Ports()[0], aToB, 1, 0, 1)
	now = 300
	send(a.Ports()[0], aToB, 1, 1, 1)
	at, ok := f.NextDelivery()
	if !ok || at != 1e6 {
		t.Errorf("NextDelivery: %d, %v, want 1000000", at, ok)
	}
	now = at - 1
	if got := numbers(t, b.Ports()[0]); got != nil {
		t.Errorf("got %v a nanosecond early", got)
	}
	now = at
	if got := numbers(t, b.Ports()[0]); !reflect.DeepEqual(got, []int{0}) {
		t.Errorf("got %v, want the first packet", got)
	}
	if at, _ := f.NextDelivery(); at != 1e6+300 {
		t.Errorf("NextDelivery: %d, want 1000300", at)
	}
	// Wait sees the time that Tick announces.
	done := make(chan struct{})
	go func() { defer close(done); b.Ports()[0].Wait(-1) }()
	f.mu.Lock()
	now = 2e6
	f.mu.Unlock()
	f.Tick()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Wait goes on after its packet's time")
	}
}

func TestBandwidth(t *testing.T) {
	now := int64(0)
	f := NewFabric(Config{Bandwidth: 104e6, Now: func() int64 { return now }}) // 104 bytes, ICRC included, in 1 µs
	a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
	send(a.Ports()[0], aToB, 1, 0, 10)
	for i := range 10 {
		now = int64(i)*1000 + 999
		if got := numbers(t, b.Ports()[0]); got != nil {
			t.Fatalf("at %d ns: got %v", now, got)
		}
		now++
		if got := numbers(t, b.Ports()[0]); !reflect.DeepEqual(got, []int{i}) {
			t.Fatalf("at %d ns: got %v, want %d", now, got, i)
		}
	}
}

func TestScript(t *testing.T) {
	f := NewFabric(Config{Faults: fault.Faults{Script: fault.Scripts(
		fault.Nth(wire.RC|wire.SendOnly, 3, fault.Verdict{Drop: true}),
		fault.Nth(wire.RC|wire.SendOnly, 5, fault.Verdict{Extra: 2}),
		fault.Nth(wire.RC|wire.SendOnly, 7, fault.Verdict{Flip: 1}),
		fault.Nth(wire.RC|wire.Ack, 1, fault.Verdict{Drop: true}),
	)}})
	a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
	send(a.Ports()[0], aToB, 1, 0, 8)
	if got, want := numbers(t, b.Ports()[0]), []int{0, 1, 3, 4, 4, 4, 5, 7}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestMulticast(t *testing.T) {
	f := NewFabric(Config{})
	a, b, c := open(t, f, 2, addrA), open(t, f, 2, addrB), open(t, f, 1, netip.MustParseAddr("10.0.0.3"))
	group := netip.MustParseAddr("239.1.1.1")
	path := &link.Path{Src: addrA, Dst: group}
	for _, l := range []link.Link{a, b, b} {
		if err := l.Join(group); err != nil {
			t.Fatal(err)
		}
	}
	try := func(want ...bool) {
		t.Helper()
		send(a.Ports()[0], path, wire.MulticastQPN, 9, 1)
		for i, l := range []link.Link{a, b, c} {
			if got := numbers(t, l.Ports()[0]); (got != nil) != want[i] || len(got) > 1 {
				t.Errorf("link %d got %v", i, got)
			}
		}
	}
	try(true, true, false)
	b.Leave(group)
	a.Leave(group)
	try(false, true, false)
	b.Leave(group)
	try(false, false, false)
	if err := b.Leave(group); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Leave once too often: %v, want EINVAL", err)
	}
	if err := b.Join(addrA); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("Join of a unicast address: %v, want EINVAL", err)
	}
}

// TestWait runs in a synctest bubble: its times are exact, and a Wait that blocks on anything but channels and
// timers deadlocks it.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(Config{Faults: fault.Faults{Delay: 3 * time.Millisecond}})
		a, b := open(t, f, 1, addrA), open(t, f, 1, addrB)
		p := b.Ports()[0]
		wait := func(what string, d, want time.Duration) {
			t.Helper()
			began := time.Now()
			p.Wait(d)
			if took := time.Since(began); took != want {
				t.Errorf("%s: Wait(%v) took %v, want %v", what, d, took, want)
			}
		}
		wait("no time", 0, 0)
		wait("deadline", 50*time.Microsecond, 50*time.Microsecond)
		p.Wake()
		p.Wake()
		wait("Wake before", -1, 0)
		wait("a used Wake", time.Second, time.Second)
		time.AfterFunc(time.Millisecond, p.Wake)
		wait("Wake during", -1, time.Millisecond)
		send(a.Ports()[0], aToB, 1, 0, 1)
		wait("packet", -1, 3*time.Millisecond)
		wait("packet not fetched", -1, 0)
		if got := numbers(t, p); len(got) != 1 {
			t.Errorf("got %v, want one packet", got)
		}
		time.AfterFunc(time.Millisecond, func() { send(a.Ports()[0], aToB, 1, 0, 1) })
		wait("packet during", time.Second, 4*time.Millisecond)
		if got := numbers(t, p); len(got) != 1 {
			t.Errorf("got %v, want one packet", got)
		}
		time.AfterFunc(time.Millisecond, func() { b.Close() })
		wait("Close during", -1, time.Millisecond)
		wait("after Close", -1, 0)
	})
}

func TestNoAllocation(t *testing.T) {
	f := NewFabric(Config{})
	a, b := open(t, f, 1, addrA).Ports()[0], open(t, f, 1, addrB).Ports()[0]
	tx := link.NewTxBatch(16, 4096)
	var rx link.RxBatch
	if n := testing.AllocsPerRun(100, func() {
		for range 16 {
			wire.BTH(tx.Alloc(aToB, 1, 100)).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 1, 1, 0)
		}
		a.Send(tx)
		if got := b.Recv(&rx); got != 16 {
			t.Fatalf("%d packets, want 16", got)
		}
	}); n != 0 {
		t.Errorf("%v allocations for 16 packets", n)
	}
}
