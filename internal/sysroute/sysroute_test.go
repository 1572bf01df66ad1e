package sysroute

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
)

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
