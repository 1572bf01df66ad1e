package udp

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/apart"
)

// TestInterfaceThatComesBack deletes the interface of a link and makes another one of the same name: the link has its
// addresses and groups there, also link-local ones.
func TestInterfaceThatComesBack(t *testing.T) {
	apart.NeedsIP(t)
	if !apart.Run(t) {
		return
	}
	apart.IP(t, "link set lo up")
	add := func() {
		for _, line := range []string{"link add back type veth peer name other", "link set other up",
			"addr add 192.0.2.1/24 dev back", "link set back up", "addr add fe80::1/64 dev back nodad"} {
			apart.IP(t, line)
		}
	}
	addrs := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1")}
	groups := []string{"239.1.2.3", "ff12::1234"}
	for _, shared := range []bool{false, true} {
		add()
		l := batchedLink(t, Config{Interface: "back", Addrs: addrs, Port: testPort(t), Shared: shared})
		for _, g := range groups {
			if err := l.Join(netip.MustParseAddr(g)); err != nil {
				t.Fatal(err)
			}
		}
		before := descriptors(t)
		apart.IP(t, "link del back")
		if err := l.SetAddrs(addrs[:1]); err != nil { // nothing shows yet what comes
			t.Errorf("shared %v: without the interface: %v", shared, err)
		}
		add()
		if err := l.SetAddrs(addrs); err != nil {
			t.Errorf("shared %v: %v", shared, err)
		}
		joined := apart.IP(t, "maddr show dev back")
		for _, g := range groups {
			if !strings.Contains(joined, g) {
				t.Errorf("shared %v: %s is not joined: %s", shared, g, joined)
			}
		}
		if n := descriptors(t); !shared && n != before { // the process that leads opens others later
			t.Errorf("shared %v: %d descriptors, %d before", shared, n, before)
		}
		apart.IP(t, "link del back")
	}
}
