package soft

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func addrs(texts ...string) (list []netip.Addr) {
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

func gids(t *gidTable) (list []string) {
	for _, g := range t.gids {
		if g.IsZero() {
			list = append(list, "-")
		} else {
			list = append(list, g.Addr().String())
		}
	}
	return list
}

func TestV_GID_02_V_GID_03_D_47_TableFollowsTheAddresses(t *testing.T) {
	table := gidTable{def: defaultGID(eui64([6]byte{2, 0, 0, 0, 0, 1}))}
	def := "fe80::ff:fe00:1"
	steps := []struct {
		addrs   []netip.Addr
		want    []string
		changed bool
	}{
		{addrs("10.0.0.1", "fd00::1", def), []string{def, "10.0.0.1", "fd00::1"}, true},
		{addrs("10.0.0.1", "fd00::1", def), []string{def, "10.0.0.1", "fd00::1"}, false},
		{addrs("fd00::1"), []string{def, "-", "fd00::1"}, true},
		{addrs("10.0.0.2", "10.0.0.3", "fd00::1"), []string{def, "10.0.0.2", "fd00::1", "10.0.0.3"}, true},
		{nil, []string{def, "-", "-", "-"}, true},
		{addrs("fe80::9"), []string{def, "fe80::9", "-", "-"}, true},
	}
	for i, s := range steps {
		if changed := table.update(s.addrs); changed != s.changed || !slices.Equal(gids(&table), s.want) {
			t.Errorf("step %d: %v, changed %v; want %v, %v", i, gids(&table), changed, s.want, s.changed)
		}
	}
	if g := table.def; g.SubnetPrefix() != 0xfe80<<48 || g.InterfaceID() != 0x000000fffe000001 {
		t.Errorf("default GID %v", g)
	}
}

func TestGIDTableIsBounded(t *testing.T) {
	var table gidTable
	many := make([]netip.Addr, 2*gidTableLen)
	for i := range many {
		many[i] = netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
	}
	table.update(many)
	if len(table.gids) != gidTableLen {
		t.Errorf("%d entries", len(table.gids))
	}
}

// testPort is the port of a device with two IPv4 and two IPv6 addresses.
func testPort(virtual bool) *portInfo {
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	d.ifaceState = func(*spec) ifaceState {
		return ifaceState{iface: "x0", up: true, mtu: 1500,
			addrs: addrs("192.0.2.1", "198.51.100.1", "2001:db8::1", "fe80::77")}
	}
	p := d.look(1, nil)
	p.virtual = virtual
	return p
}

func TestSelectGIDByFamilyAndScope(t *testing.T) {
	p := testPort(true)
	for peer, want := range map[string]string{
		"192.0.2.9": "192.0.2.1", "::ffff:10.9.9.9": "192.0.2.1", "2001:db8::9": "2001:db8::1", "fe80::1": "fe80::77",
	} {
		c, err := p.selectGID(netip.MustParseAddr(peer))
		if err != nil || c.GID.Addr().String() != want || p.table.gids[c.Index] != c.GID || !strings.Contains(c.Reason,
			want) {
			t.Errorf("peer %s: %+v, %v", peer, c, err)
		}
	}
	p.addrs = addrs("192.0.2.1")
	if c, err := p.selectGID(netip.MustParseAddr("2001:db8::9")); err == nil {
		t.Errorf("an IPv6 peer of an IPv4 device: %+v", c)
	} else if !strings.Contains(err.Error(), "1 (192.0.2.1)") {
		t.Errorf("the error does not list the usable indices: %v", err)
	}
}

func TestSelectGIDByRoute(t *testing.T) {
	lo := loopbackName(t)
	d := newDevice(spec{name: "vrb_" + lo, iface: lo})
	p := d.look(1, nil)
	c, err := p.selectGID(netip.MustParseAddr("127.0.0.1"))
	if err != nil || c.GID.Addr().String() != "127.0.0.1" || !strings.Contains(c.Reason, "route") {
		t.Errorf("%+v, %v", c, err)
	}
	// A device with its own address does not send from the address of the route.
	d = newDevice(spec{name: "b", iface: lo, addrs: addrs("127.0.0.2")})
	c, err = d.look(1, nil).selectGID(netip.MustParseAddr("127.0.0.1"))
	if err != nil || c.GID.Addr().String() != "127.0.0.2" || !strings.Contains(c.Reason, "network of "+lo) {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestSelectGIDOfAZone checks that a link-local peer of another interface is refused, and that the networks of the
// interface count only for peers in them.
func TestSelectGIDOfAZone(t *testing.T) {
	p := testPort(false)
	c, err := p.selectGID(netip.MustParseAddr("fe80::1%x0"))
	if err != nil || c.GID.Addr().String() != "fe80::77" {
		t.Errorf("a peer of the interface: %+v, %v", c, err)
	}
	_, err = p.selectGID(netip.MustParseAddr("fe80::1%x1"))
	if !errors.Is(err, verbs.ENODATA) || !strings.Contains(err.Error(), "vrb_x is on x0") {
		t.Errorf("a peer of another interface: %v", err)
	}
	p.virtual = true
	if _, err := p.selectGID(netip.MustParseAddr("fe80::1%x1")); err != nil {
		t.Errorf("a network in memory has no zones: %v", err)
	}
	lo := loopbackName(t)
	d := newDevice(spec{name: "b", iface: lo, addrs: addrs("127.0.0.2")})
	c, err = d.look(1, nil).selectGID(netip.MustParseAddr("198.51.100.9"))
	if err != nil || !strings.Contains(c.Reason, "same family") {
		t.Errorf("a peer in no network of the interface: %+v, %v", c, err)
	}
}

func TestV_QPM_08_PathNeedsAUsableGID(t *testing.T) {
	p := testPort(false)
	cases := []struct {
		index int
		dgid  string
		src   string // of the path, empty if it is refused
		err   string // part of the error
	}{
		{1, "192.0.2.9", "192.0.2.1", ""},
		{2, "192.0.2.9", "198.51.100.1", ""},
		{3, "2001:db8::9", "2001:db8::1", ""},
		{0, "192.0.2.9", "",
			"the default GID, not an address of interface x0; usable GID indices are 1 (192.0.2.1), 2 (198.51.100.1), 3 ("},
		{5, "192.0.2.9", "", "GID index 5: empty entry"},
		{1, "2001:db8::9", "", "one is IPv4, the other IPv6"},
		{1, "ff0e::ffff:239.1.2.3", "192.0.2.1", ""},
		{1, "239.1.2.3", "192.0.2.1", ""},
		{3, "ff0e::ffff:10.1.2.3", "2001:db8::1", ""}, // not an IPv4 group
	}
	for _, c := range cases {
		dst := netip.MustParseAddr(c.dgid)
		path, err := p.path(&verbs.AHAttr{IsGlobal: true, PortNum: 1, GRH: verbs.GlobalRoute{
			DGID: verbs.GIDFromAddr(dst), SGIDIndex: c.index, HopLimit: 7, TrafficClass: 8, FlowLabel: 9,
		}})
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("index %d to %s: %v, want %s", c.index, c.dgid, err, c.err)
			}
			continue
		}
		if err != nil || path.Src.String() != c.src || path.HopLimit != 7 || path.TClass != 8 || path.FlowLabel != 9 {
			t.Errorf("index %d to %s: %+v, %v", c.index, c.dgid, path, err)
		}
	}
	group := verbs.GIDFromAddr(netip.MustParseAddr("ff0e::ffff:239.1.2.3"))
	path, _ := p.path(&verbs.AHAttr{GRH: verbs.GlobalRoute{DGID: group, SGIDIndex: 1}})
	if path.Dst.String() != "239.1.2.3" {
		t.Errorf("the RoCE v1 form of an IPv4 group leads to %v", path.Dst)
	}
}

func TestV_PORT_04_ActiveMTU(t *testing.T) {
	for mtu, want := range map[int]verbs.MTU{
		1500: verbs.MTU1024, 4175: verbs.MTU2048, 4176: verbs.MTU4096, 9000: verbs.MTU4096, 65536: verbs.MTU4096,
		1280: verbs.MTU1024, 576: verbs.MTU256, 100: verbs.MTU256, 592: verbs.MTU512,
	} {
		p := portInfo{mtu: mtu}
		if got := p.activeMTU(); got != want {
			t.Errorf("interface MTU %d: active MTU %v, want %v", mtu, got, want)
		}
	}
}

// TestV_GID_03_V_DEV_12_DefaultGIDContainsTheGUID: entry 0 is link-local, and its lower half is the device's GUID,
// which Device.GUID and QueryDevice return too.
func TestV_GID_03_V_DEV_12_DefaultGIDContainsTheGUID(t *testing.T) {
	dev, err := New(Config{Name: "vrb_gid", Addrs: addrs("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	vctx, err := dev.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer vctx.Close()
	attr, err := vctx.QueryDevice()
	if err != nil {
		t.Fatal(err)
	}
	gid, err := vctx.QueryGID(1, 0)
	if err != nil {
		t.Fatal(err)
	}
	guid := dev.GUID()
	if guid.Uint64() == 0 || attr.NodeGUID != guid || gid.SubnetPrefix() != 0xfe80<<48 ||
		gid.InterfaceID() != guid.Uint64() {
		t.Errorf("GUID %v, node_guid %v, GID[0] %v", guid, attr.NodeGUID, gid)
	}
}
