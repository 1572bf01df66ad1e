package rsocket

import (
	"context"
	"net/netip"
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
