package soft

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/verbena-rdma/verbena/internal/host"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
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
		_, err := b.open(func() []netip.Addr { return all[:len(all)-c.fewer] }, func(list []netip.Addr) (link.Link, error) {
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
	if _, err := new(binding).open(func() []netip.Addr { return all[:1] }, func([]netip.Addr) (link.Link, error) {
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

// TestAddressesOfAnInterface: the addresses of a port are the unicast ones of its interface: IPv4 first, link-local
// IPv6 last, the others in the system's order, none twice.
func TestAddressesOfAnInterface(t *testing.T) {
	var list []net.Addr
	for _, text := range []string{"fe80::1/64", "fd00::1/64", "224.0.0.1/4", "10.0.0.2/8", "ff02::1/128", "0.0.0.0/0",
		"fd00::2/64", "10.0.0.1/8", "::ffff:10.0.0.2/104", "::/0", "fd00::1/128"} {
		ip, subnet, err := net.ParseCIDR(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, &net.IPNet{IP: ip, Mask: subnet.Mask})
	}
	list = append(list, &net.UnixAddr{Name: "no address of an interface"})
	want := addrs("10.0.0.2", "10.0.0.1", "fd00::1", "fd00::2", "fe80::1")
	if got := unicast(list); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestPathOfAnAddressHandle: without a flow label the QP numbers choose the source port, and without a static rate
// there is no limit.
func TestPathOfAnAddressHandle(t *testing.T) {
	p := &portInfo{addrs: addrs("10.0.0.1")}
	p.table.update(p.addrs)
	index := slices.IndexFunc(p.table.gids, func(g verbs.GID) bool { return g.Addr() == p.addrs[0] })
	attr := verbs.AHAttr{IsGlobal: true, GRH: verbs.GlobalRoute{
		DGID: verbs.GIDFromAddr(netip.MustParseAddr("10.0.0.2")), SGIDIndex: index, TrafficClass: 3, HopLimit: 4}}
	want := link.Path{Src: p.addrs[0], Dst: netip.MustParseAddr("10.0.0.2"), TClass: 3, HopLimit: 4}
	if got, err := p.path(&attr); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	attr.GRH.FlowLabel, attr.StaticRate = 0x12345, verbs.Rate2500Mbps
	want.FlowLabel, want.Source, want.Rate = 0x12345, 0xe341, 2.5e9
	if got, err := p.path(&attr); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestGroupsInBothForms: an IPv4 group may be written as ff0e::ffff:a.b.c.d, and no other GID of a group is one.
func TestGroupsInBothForms(t *testing.T) {
	for text, want := range map[string]string{
		"ff0e::ffff:224.1.2.3":       "224.1.2.3",
		"ff0e::ffff:10.1.2.3":        "ff0e::ffff:a01:203",
		"ff0e:100::ffff:224.1.2.3":   "ff0e:100::ffff:e001:203",
		"ff0e::1:0:ffff:224.1.2.3":   "ff0e::1:0:ffff:e001:203",
		"ff0e::1:ffff:224.1.2.3":     "ff0e::1:ffff:e001:203",
		"ff0e::ff00:224.1.2.3":       "ff0e::ff00:e001:203",
		"::ffff:224.1.2.3":           "224.1.2.3",
		"ff0e:0:0:1::ffff:224.1.2.3": "ff0e:0:0:1:0:ffff:e001:203",
	} {
		if got := addrOf(verbs.GID(netip.MustParseAddr(text).As16())); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}
}

// TestNoProcessOwnsQP1: no process is named by QP 1, whose packets package host distributes; others are.
func TestNoProcessOwnsQP1(t *testing.T) {
	d := &shmDirectory{}
	a := netip.MustParseAddr("10.0.0.1")
	if one, first := d.Owner(a, 1), d.Owner(a, minQPN); one != "" || first == "" || d.Owner(a, minQPN-1) != "" {
		t.Errorf("QP 1: %q, QP %d: %q", one, minQPN, first)
	}
}

// TestSameLinkLocalAddress: a link-local address names different processes on different interfaces, and none without
// one.
func TestSameLinkLocalAddress(t *testing.T) {
	one, two, several := &shmDirectory{iface: "one"}, &shmDirectory{iface: "two"}, &shmDirectory{}
	a := netip.MustParseAddr("fe80::1")
	if x, y := one.Owner(a, minQPN), two.Owner(a, minQPN); x == y || x == "" || x != one.Owner(a.WithZone("one"), minQPN) {
		t.Errorf("%q and %q", x, y)
	}
	if x := several.Owner(a, minQPN); x != "" {
		t.Errorf("several interfaces: %q", x)
	}
	for _, s := range []string{"10.0.0.1", "169.254.0.1", "fd00::1"} {
		if a := netip.MustParseAddr(s); one.Owner(a, minQPN) != two.Owner(a, minQPN) || several.Owner(a, minQPN) == "" {
			t.Errorf("%v: %q, %q", a, one.Owner(a, minQPN), several.Owner(a, minQPN))
		}
	}
}

// TestRecipientOfManagement: a message about a connection names the process of the receiver's communication ID. A
// request and the datagrams of other classes name none.
func TestRecipientOfManagement(t *testing.T) {
	d := &shmDirectory{}
	a := netip.MustParseAddr("10.0.0.1")
	const mads, slot = wire.BTHLen + wire.DETHLen, 0xC3
	packet := func(k cmmsg.Kind, class uint8, at int) []byte {
		pkt := make([]byte, mads+wire.MADLen)
		wire.BTH(pkt).Put(wire.UD|wire.SendOnly, 0, 0xFFFF, wire.GSIQPN, 1, 0)
		mad := pkt[mads:]
		cmmsg.Make(mad, k, 1)
		mad[host.MADClass], mad[at] = class, slot
		return pkt
	}
	for _, x := range []struct {
		kind  cmmsg.Kind
		class uint8
		at    int // of the communication ID
		known bool
	}{
		{cmmsg.KindREP, host.ClassCM, host.MADPeerID, true},
		{cmmsg.KindRTU, host.ClassCM, host.MADPeerID, true},
		{cmmsg.KindDREQ, host.ClassCM, host.MADPeerID, true},
		{cmmsg.KindDREP, host.ClassCM, host.MADPeerID, true},
		{cmmsg.KindREJ, host.ClassCM, host.MADPeerID, true},
		{cmmsg.KindSIDRREP, host.ClassCM, host.MADLocalID, true},
		{cmmsg.KindREQ, host.ClassCM, host.MADPeerID, false},
		{cmmsg.KindSIDRREQ, host.ClassCM, host.MADLocalID, false},
		{cmmsg.KindREP, 3, host.MADPeerID, false},
	} {
		qpn, conn, ok := d.Recipient(packet(x.kind, x.class, x.at))
		if ok != x.known || ok && (d.Owner(a, qpn) != shmName(a, slot) || conn != slot<<24) {
			t.Errorf("%v of class %d: QP %#x, connection %#x, %v", x.kind, x.class, qpn, conn, ok)
		}
	}
	if qpn, _, ok := d.Recipient(packet(cmmsg.KindREP, host.ClassCM, host.MADPeerID)[:mads]); ok {
		t.Errorf("a packet without a datagram: QP %#x", qpn)
	}
	if qpn, _, ok := d.Recipient(packet(cmmsg.KindREP, host.ClassCM, host.MADLocalID)); ok {
		t.Errorf("a message without an ID: QP %#x", qpn)
	}
}
