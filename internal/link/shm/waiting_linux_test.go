package shm

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestWaitingSeesAFullRing checks that a port that is about to sleep sees the packets of a ring that a sender has
// filled, and did not find full, since the port has read it last: nothing wakes the port again.
func TestWaitingSeesAFullRing(t *testing.T) {
	var d testDirectory
	a, b := d.open(t, addrA, 1), d.open(t, addrB, 1)
	path := a.ready(addrB, 8)
	const n = 1000
	zeros := func() {
		packet := a.tx.Alloc(path, 8, wire.BTHLen+n)
		if packet == nil {
			t.Fatal("no place")
		}
		clear(packet)
		wire.BTH(packet).Put(wire.RC|wire.SendOnly, 0, 0xFFFF, 8, 0, 0)
		a.p.Send(a.tx)
	}
	r := &(*b.in.Load())[0].rx[0][0]
	for range 40 {
		zeros()
		b.next()
	}
	b.take() // the ring is empty: the port shows where it is
	for freed := a.p.routeOf(path, 8).ring(0, 8).prod.Freed(); ; {
		zeros()
		b.next()
		if now := a.p.routeOf(path, 8).ring(0, 8).prod.Freed(); now != freed {
			break
		}
	}
	to := a.p.routeOf(path, 8).ring(0, 8)
	for int(to.prod.Position()-to.prod.Freed()) < r.rings.ring-4*n {
		zeros()
		if !b.p.waiting() {
			t.Fatalf("%d bytes that were not received do not wait", to.prod.Unread())
		}
	}
}
