package soft

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/verbs"
)

// TestSpeedOfAPort: a port has the least width and speed that reach those of its interface, as the kernel reports them.
func TestSpeedOfAPort(t *testing.T) {
	type both struct {
		width verbs.LinkWidth
		speed verbs.LinkSpeed
	}
	x1, x2, x4 := verbs.LinkWidth1X, verbs.LinkWidth2X, verbs.LinkWidth4X
	steps := []struct {
		mbps int // the largest
		want both
	}{
		{1000, both{x1, verbs.LinkSpeedSDR}}, {10000, both{x1, verbs.LinkSpeedFDR10}}, {20000, both{x4, verbs.LinkSpeedDDR}},
		{25000, both{x1, verbs.LinkSpeedEDR}}, {40000, both{x4, verbs.LinkSpeedFDR10}}, {50000, both{x2, verbs.LinkSpeedEDR}},
		{100000, both{x4, verbs.LinkSpeedEDR}}, {200000, both{x4, verbs.LinkSpeedHDR}},
	}
	least := 0 // unknown
	for _, s := range steps {
		for _, mbps := range []int{least, s.mbps} {
			if w, v := widthAndSpeed(mbps); (both{w, v}) != s.want {
				t.Errorf("%d Mb/s: %v %v, want %v", mbps, w, v, s.want)
			}
		}
		least = s.mbps + 1
	}
}

// TestKeyOfADatagram: a datagram of QP 1 has the P_Key of the index of its address handle, 0 beyond the table.
func TestKeyOfADatagram(t *testing.T) {
	a := &ah{keys: newPKeyTable([]uint16{0xffff, 0x8001})}
	for index, want := range []uint16{0xffff, 0x8001, 0, 0} {
		if a.SetPKeyIndex(uint16(index)); a.key() != want {
			t.Errorf("index %d: %#x, want %#x", index, a.key(), want)
		}
	}
}

// TestBindingNeedsOneAddress: a device opens if one of its addresses can be bound, whichever it is, and not if none can
// or for another reason.
func TestBindingNeedsOneAddress(t *testing.T) {
	all := addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")
	for _, c := range []struct {
		bound string // the only one that can be bound
		err   error  // of the others
		tries int
		fewer int // addresses
	}{
		{"10.0.0.1", eaddrnotavail, 2, 0}, {"10.0.0.3", eaddrnotavail, 4, 0}, {"10.0.0.2", eaddrnotavail, 3, 1},
		{"", eaddrnotavail, 4, 0}, {"10.0.0.1", verbs.ENOMEM, 1, 0},
	} {
		b, tries := &binding{}, 0
		_, err := b.open(all[:len(all)-c.fewer], func(list []netip.Addr) (link.Link, error) {
			tries++
			if len(list) == 1 && list[0].String() == c.bound {
				return unbindable{}, nil
			}
			return nil, c.err
		})
		fails := c.bound == "" || c.err != eaddrnotavail
		if (err != nil) != fails || fails && !errors.Is(err, c.err) || tries != c.tries {
			t.Errorf("%+v: %v after %d tries", c, err, tries)
		}
		if !fails && (len(b.addrs) != 1 || b.addrs[0].String() != c.bound) {
			t.Errorf("%+v: bound to %v", c, b.addrs)
		}
	}
	tries := 0
	if _, err := new(binding).open(all[:1], func([]netip.Addr) (link.Link, error) {
		tries++
		return nil, eaddrnotavail
	}); !errors.Is(err, eaddrnotavail) || tries != 1 {
		t.Errorf("one address: %v after %d tries, want one", err, tries)
	}
}

// unbindable is a link whose addresses cannot be changed.
type unbindable struct{ link.Link }

func (unbindable) SetAddrs([]netip.Addr) error { return eaddrnotavail }

// TestPortOfSeveralInterfaces: a port on several interfaces is up while one of them is, has the smallest MTU of those
// that exist, and is gone when none exists.
func TestPortOfSeveralInterfaces(t *testing.T) {
	gone := ifaceState{gone: true}
	small, large := ifaceState{up: true, mtu: 1500, speed: 10}, ifaceState{mtu: 9000, speed: 20}
	for _, c := range []struct{ a, b, want ifaceState }{
		{small, large, ifaceState{up: true, mtu: 1500, speed: 10}},
		{large, small, ifaceState{up: true, mtu: 1500, speed: 20}},
		{large, large, large}, {small, gone, small}, {gone, small, small}, {gone, large, large}, {gone, gone, gone},
	} {
		got := c.a.with(c.b)
		if got.up != c.want.up || got.mtu != c.want.mtu || got.speed != c.want.speed || got.gone != c.want.gone {
			t.Errorf("%+v with %+v: %+v, want %+v", c.a, c.b, got, c.want)
		}
	}
}
