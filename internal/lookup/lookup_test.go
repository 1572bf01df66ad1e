package lookup_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

func TestAddressLiterals(t *testing.T) {
	for _, c := range []struct{ network, host, want string }{
		{"ip", "198.18.0.1", "198.18.0.1"},
		{"ip4", "198.18.0.1", "198.18.0.1"},
		{"ip", "::ffff:198.18.0.1", "198.18.0.1"},
		{"ip", "fe80::1%eth7", "fe80::1%eth7"},
		{"ip6", "fe80::1%eth7", "fe80::1%eth7"},
		{"ip6", "fd00::1", "fd00::1"},
	} {
		got, err := lookup.Addrs(context.Background(), c.network, c.host)
		if err != nil || len(got) != 1 || got[0] != netip.MustParseAddr(c.want) {
			t.Errorf("%s %s: %v, %v", c.network, c.host, got, err)
		}
	}
}

func TestLookupErrors(t *testing.T) {
	for _, c := range []struct{ network, host string }{{"ip4", "fd00::1"}, {"ip6", "198.18.0.1"}, {"ip", ""}} {
		got, err := lookup.Addrs(context.Background(), c.network, c.host)
		if e := net.Error(nil); !errors.As(err, &e) || got != nil {
			t.Errorf("%s %q: %v, %v", c.network, c.host, got, err)
		}
	}
	if got, err := lookup.Addrs(context.Background(), "tcp", "localhost"); err == nil {
		t.Errorf("tcp: %v", got)
	}
}

// Names are resolved by the system's resolver. Every system knows localhost.
func TestNames(t *testing.T) {
	got, err := lookup.Addrs(context.Background(), "ip", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range got {
		if !a.IsLoopback() || a.Is4In6() {
			t.Errorf("localhost is %v", a)
		}
	}
}
