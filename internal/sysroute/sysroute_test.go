package sysroute

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The zone of a link-local address is the name of an interface or its index.
func TestZones(t *testing.T) {
	lo, err := net.InterfaceByName(Interface(netip.MustParseAddr("127.0.0.1")))
	if err != nil {
		t.Skip(err)
	}
	byIndex := netip.MustParseAddr("fe80::1").WithZone(strconv.Itoa(lo.Index))
	if a := Named(byIndex); a.Zone() != lo.Name {
		t.Errorf("%v: zone %q, want %q", byIndex, a.Zone(), lo.Name)
	}
	for _, text := range []string{"fe80::1", "fe80::1%none0", "fe80::1%99999", "fe80::1%" + lo.Name, "192.0.2.1"} {
		if a := netip.MustParseAddr(text); Named(a) != a {
			t.Errorf("%v becomes %v", a, Named(a))
		}
	}
	for _, c := range []struct {
		peer       netip.Addr
		interfaces []string
		want       bool
	}{
		{byIndex, []string{lo.Name}, true},
		{byIndex, []string{"x", lo.Name}, true},
		{byIndex, []string{"x"}, false},
		{byIndex, nil, true},
		{byIndex.WithZone("x"), []string{lo.Name, "x"}, true},
		{byIndex.WithZone("x"), []string{lo.Name}, false},
		{byIndex.WithZone(""), []string{lo.Name}, true},
	} {
		if got := InZone(c.peer, c.interfaces...); got != c.want {
			t.Errorf("%v in the zone of %q: %t", c.peer, c.interfaces, got)
		}
	}
}

func TestSource(t *testing.T) {
	local, err := Source(netip.MustParseAddr("127.0.0.1"), "")
	if err != nil || !local.IsLoopback() {
		t.Fatalf("source of the route to 127.0.0.1: %v, %v", local, err)
	}
	// No interface has this name.
	_, err = Source(netip.MustParseAddr("fe80::1"), "none0")
	if want := "route to fe80::1%none0: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	group := netip.MustParseAddr("239.1.1.1")
	err = routeError(group, syscall.ENETUNREACH)
	if !errors.Is(err, syscall.ENETUNREACH) || !strings.Contains(err.Error(), "bind to a local address") {
		t.Errorf("without a route to a group: %v", err)
	}
	peer := netip.MustParseAddr("192.0.2.1")
	if err := routeError(peer, syscall.EINVAL); !errors.Is(err, syscall.EINVAL) ||
		!strings.Contains(err.Error(), "blackhole") {
		t.Errorf("with a route of the type blackhole: %v", err)
	}
	ifi, err := net.InterfaceByName(Interface(local))
	if err != nil || ifi.Flags&net.FlagLoopback == 0 {
		t.Errorf("interface of %v: %q, %v", local, Interface(local), err)
	}
	for _, a := range []netip.Addr{{}, netip.MustParseAddr("192.0.2.1")} { // nobody has an address for documentation
		if name := Interface(a); name != "" {
			t.Errorf("%v belongs to %s", a, name)
		}
	}
}
