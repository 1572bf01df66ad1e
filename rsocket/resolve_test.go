package rsocket

import (
	"context"
	"net/netip"
	"slices"
	"testing"
)

// Zones of literal addresses are kept, although the resolver of package net drops them.
func TestResolveKeepsTheZone(t *testing.T) {
	for _, network := range []string{"tcp", "tcp6", "udp", "udp6"} {
		got, err := resolve(context.Background(), network, "[fe80::1%eth9]:7")
		if err != nil || len(got) != 1 || got[0] != netip.MustParseAddrPort("[fe80::1%eth9]:7") {
			t.Errorf("%s: %v, %v", network, got, err)
		}
	}
	if got, err := resolve(context.Background(), "tcp4", "[fe80::1%eth9]:7"); err == nil {
		t.Errorf("tcp4: %v", got)
	}
}

// An address without a host, and an unspecified one, is this host, as in package net.
func TestDialToThisHost(t *testing.T) {
	list := func(s ...string) (all []netip.AddrPort) {
		for _, a := range s {
			all = append(all, netip.MustParseAddrPort(a))
		}
		return all
	}
	for _, c := range []struct {
		network, address string
		want             []netip.AddrPort
	}{
		{"tcp", ":7", list("127.0.0.1:7")},
		{"tcp6", ":7", list("[::1]:7")},
		{"tcp", "0.0.0.0:7", list("127.0.0.1:7")},
		{"tcp", "[::]:7", list("[::1]:7", "127.0.0.1:7")},
		{"udp6", "[::]:7", list("[::1]:7")},
		{"tcp", "10.0.0.1:7", list("10.0.0.1:7")},
	} {
		addrs, err := resolve(context.Background(), c.network, c.address)
		if got := thisHost(c.network, addrs); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %s: %v, want %v (%v)", c.network, c.address, got, c.want, err)
		}
	}
}
