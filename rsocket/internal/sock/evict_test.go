package sock

import (
	"net/netip"
	"testing"
)

// Peers that have only sent, whose addresses may be forged, take the places of others of their kind first.
func TestForgedPeersDoNotEvictOthers(t *testing.T) {
	d := &Datagram{dests: map[netip.AddrPort]*dest{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	const answered = 8
	for i := range maxDests {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), uint16(1+i))
		d.dests[to] = &dest{to: to, sent: i < answered}
	}
	d.strangers = maxDests - answered
	for range maxDests - answered {
		d.evict()
	}
	for to, dst := range d.dests {
		if !dst.sent {
			t.Errorf("%v is left, to which nothing was sent", to)
		}
	}
	if n := len(d.dests); n != answered || d.strangers != 0 {
		t.Errorf("%d peers left, %d of them strangers: must be %d and 0", n, d.strangers, answered)
	}
	d.evict()
	if n := len(d.dests); n != answered-1 {
		t.Errorf("%d peers left: must be %d", n, answered-1)
	}
}
