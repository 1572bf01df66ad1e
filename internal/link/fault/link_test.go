package fault_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/wire"
)

var (
	addrA = netip.MustParseAddr("10.0.0.1")
	addrB = netip.MustParseAddr("10.0.0.2")
	aToB  = &link.Path{Src: addrA, Dst: addrB}
)

// rig is two links of a fabric without faults in virtual time, with faults at the first link.
type rig struct {
	now  int64
	a, b link.Port
	l    *fault.Link
}

func newRig(t *testing.T, cfg fault.Config) *rig {
	t.Helper()
	r := new(rig)
	cfg.Now = func() int64 { return r.now }
	f := mem.NewFabric(mem.Config{Now: cfg.Now})
	open := func(a netip.Addr) link.Link {
		l, err := f.Open([]netip.Addr{a}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	r.l = fault.Wrap(open(addrA), cfg)
	r.a, r.b = r.l.Ports()[0], open(addrB).Ports()[0]
	return r
}

func put(b *link.TxBatch, path *link.Path, n int) {
	pkt := b.Alloc(path, 1, 100)
	wire.BTH(pkt).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 1, uint32(n), 0)
	for k := wire.BTHLen; k < len(pkt); k++ {
		pkt[k] = byte(n + k)
	}
}

func send(p link.Port, path *link.Path, numbers ...int) {
	b := link.NewTxBatch(len(numbers), len(numbers)*200)
	for _, n := range numbers {
		put(b, path, n)
	}
	p.Send(b)
}

// collect receives the arrived packets and returns their numbers.
func collect(t *testing.T, p link.Port, b *link.RxBatch) (ns []int) {
	t.Helper()
	for p.Recv(b) > 0 {
		for _, pkt := range b.Packets {
			n := int(wire.BTH(pkt.Data).PSN())
			for k := wire.BTHLen; k < len(pkt.Data); k++ {
				if pkt.Data[k] != byte(n+k) {
					t.Fatalf("packet %d: byte %d is %#x", n, k, pkt.Data[k])
				}
			}
			if len(pkt.Data) != 100 || !pkt.Src.IsValid() || !pkt.Dst.IsValid() {
				t.Fatalf("packet %d: %d bytes, %v -> %v", n, len(pkt.Data), pkt.Src, pkt.Dst)
			}
			ns = append(ns, n)
		}
	}
	return ns
}

func (r *rig) expect(t *testing.T, what string, p link.Port, want ...int) {
	t.Helper()
	var b link.RxBatch
	if got := collect(t, p, &b); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func script() func(fault.Packet) (fault.Verdict, bool) {
	return fault.Scripts(
		fault.Nth(wire.RC|wire.SendOnly, 2, fault.Verdict{Drop: true}),
		fault.Nth(wire.RC|wire.SendOnly, 4, fault.Verdict{Extra: 2}),
		fault.Nth(wire.RC|wire.SendOnly, 5, fault.Verdict{Flip: 1}),
		fault.Nth(wire.RC|wire.SendOnly, 6, fault.Verdict{Delay: 1000}),
		fault.Nth(wire.RC|wire.SendOnly, 7, fault.Verdict{Delay: 500, Extra: 1}),
	)
}

func TestSendFaults(t *testing.T) {
	r := newRig(t, fault.Config{Send: fault.Faults{Script: script()}})
	send(r.a, aToB, 1, 2, 3, 4, 5, 6, 7, 8)
	r.expect(t, "at once", r.b, 1, 3, 4, 8, 4, 4)
	r.now = 999
	r.expect(t, "without a call that sends", r.b)
	send(r.a, aToB, 9)
	r.expect(t, "at 999", r.b, 9, 7, 7)
	r.now = 1000
	var none link.RxBatch
	r.a.Recv(&none)
	r.expect(t, "at 1000", r.b, 6)
	if c := r.a.Counters(); c.TxPackets != 9+1 || c.RxICRCErrors != 0 {
		t.Errorf("counters %+v", c)
	}
}

func TestRecvFaults(t *testing.T) {
	r := newRig(t, fault.Config{Recv: fault.Faults{Script: script()}})
	bToA := &link.Path{Src: addrB, Dst: addrA}
	send(r.b, bToA, 1, 2, 3, 4, 5, 6, 7, 8)
	r.expect(t, "at once", r.a, 1, 3, 4, 8, 4, 4)
	r.now = 999
	r.expect(t, "at 999", r.a, 7, 7)
	r.now = 1000
	r.expect(t, "at 1000", r.a, 6)
	if c := r.a.Counters(); c.RxICRCErrors != 1 {
		t.Errorf("counters %+v, want 1 ICRC error", c)
	}
	r.l.SetFaults(fault.Faults{}, fault.Faults{Loss: 1})
	send(r.b, bToA, 1, 2)
	send(r.a, aToB, 3)
	r.expect(t, "all lost", r.a)
	r.expect(t, "the other way", r.b, 3)
}

// TestBatchOwnership checks that a batch's packets are unchanged until its next Recv, whatever is held back
// meanwhile.
func TestBatchOwnership(t *testing.T) {
	r := newRig(t, fault.Config{Recv: fault.Faults{Delay: 10}})
	bToA := &link.Path{Src: addrB, Dst: addrA}
	send(r.b, bToA, 1, 2, 3)
	var one, two link.RxBatch
	r.a.Recv(&one)
	r.now = 20
	if n := r.a.Recv(&one); n != 3 {
		t.Fatalf("%d packets, want 3", n)
	}
	send(r.b, bToA, 4, 5, 6)
	r.a.Recv(&two)
	r.now = 40
	r.a.Recv(&two)
	for i, pkt := range slices.Concat(one.Packets, two.Packets) {
		if n := int(wire.BTH(pkt.Data).PSN()); n != i+1 {
			t.Errorf("packet %d turned into %d", i+1, n)
		}
	}
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mem.NewFabric(mem.Config{})
		inner, err := f.Open([]netip.Addr{addrA}, 1)
		if err != nil {
			t.Fatal(err)
		}
		l := fault.Wrap(inner, fault.Config{Recv: fault.Faults{Delay: 3 * time.Millisecond}})
		defer l.Close()
		p := l.Ports()[0]
		var rx link.RxBatch
		began := time.Now()
		send(p, &link.Path{Src: addrA, Dst: addrA}, 1)
		for p.Recv(&rx) == 0 {
			p.Wait(-1)
		}
		if took := time.Since(began); took != 3*time.Millisecond {
			t.Errorf("the packet took %v, want 3ms", took)
		}
		// A packet that another goroutine holds back ends a Wait in time.
		l.SetFaults(fault.Faults{Delay: 5 * time.Millisecond}, fault.Faults{})
		began = time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			for p.Recv(&rx) == 0 {
				p.Wait(-1)
			}
		}()
		synctest.Wait()
		send(p, &link.Path{Src: addrA, Dst: addrA}, 2)
		<-done
		if took := time.Since(began); took != 5*time.Millisecond {
			t.Errorf("the packet took %v, want 5ms", took)
		}
	})
}

// TestOverUDP loses, duplicates and delays packets of real sockets.
func TestOverUDP(t *testing.T) {
	lo := netip.MustParseAddr("127.0.0.1")
	var inner link.Link
	for port := uint16(20000); inner == nil; port++ {
		l, err := udp.Open(udp.Config{Addrs: []netip.Addr{lo}, Port: port})
		if err == nil {
			inner = l
		} else if port > 30000 {
			t.Fatal(err)
		}
	}
	some := fault.Faults{Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Jitter: 50 * time.Microsecond}
	l := fault.Wrap(inner, fault.Config{Seed: 5, Send: some, Recv: some})
	defer l.Close()
	if l.Capabilities().RecvBuffer == 0 {
		t.Error("the inner link's sizes are hidden")
	}
	p := l.Ports()[0]
	var rx link.RxBatch
	count, last, disorder, rounds := map[int]int{}, 0, 0, 0
	take := func() {
		for _, n := range collect(t, p, &rx) {
			count[n]++
			if n < last {
				disorder++
			}
			last = n
		}
	}
	const n = 3000
	for i := 0; i < n; i += 10 {
		b := link.NewTxBatch(10, 2000)
		for k := range 10 {
			put(b, &link.Path{Src: lo, Dst: lo}, i+k)
		}
		p.Send(b)
		take()
	}
	for ; rounds < 100; rounds++ {
		p.Wait(time.Millisecond)
		take()
	}
	single, multiple := 0, 0
	for _, c := range count {
		if c == 1 {
			single++
		} else {
			multiple++
		}
	}
	// Without copies, 0.65 of the packets would arrive undamaged both times.
	result := fmt.Sprintf(
		"of %d packets %d came once, %d more often, %d too late; counters %+v",
		n,
		single,
		multiple,
		disorder,
		p.Counters(),
	)
	t.Log(result)
	if single+multiple < n/2 || single+multiple > n*9/10 || multiple < n/20 || disorder < n/20 ||
		p.Counters().RxICRCErrors < n/50 {
		t.Error(result)
	}
}
