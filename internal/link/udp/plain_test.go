package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestPlainRingIsBounded checks that a flood of packets for a port that takes none does not fill the memory.
func TestPlainRingIsBounded(t *testing.T) {
	r, kept := ring{signal: make(chan struct{}, 1)}, pool{}
	var dropped int
	for range 4 * plainRing {
		if !r.push(&plainPacket{}) {
			dropped++
		}
		kept.put(&plainPacket{}, &plainPacket{})
	}
	if got := r.pop(nil, 8*plainRing); len(got) != plainRing || dropped != 3*plainRing || len(kept.free) != plainRing {
		t.Errorf("%d packets are queued, %d were dropped, %d are kept", len(got), dropped, len(kept.free))
	}
}

// TestPlainDoesNotAllocate checks that each port of a link takes its packets without an allocation.
func TestPlainDoesNotAllocate(t *testing.T) {
	port := testPort(t)
	l, err := openPlain(Config{Addrs: []netip.Addr{lo4}, Ports: 4, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ports := l.Ports()
	path := &link.Path{Src: lo4, Dst: lo4}
	tx := link.NewTxBatch(len(ports), 1<<12)
	rx := make([]link.RxBatch, len(ports))
	round := func() {
		for i := range ports {
			fill(tx.Alloc(path, uint32(i), wire.BTHLen+4), uint32(i), 0)
		}
		ports[0].Send(tx)
		for i, p := range ports {
			for p.Recv(&rx[i]) == 0 {
				p.Wait(time.Second)
			}
			if qpn := wire.BTH(rx[i].Packets[0].Data).DestQPN(); qpn != uint32(i) {
				t.Fatalf("port %d received a packet for QP %d", i, qpn)
			}
		}
	}
	for range 8 {
		round()
	}
	if n := testing.AllocsPerRun(50, round); n > 0 {
		t.Errorf("%v allocations for %d packets", n, len(ports))
	}
}
