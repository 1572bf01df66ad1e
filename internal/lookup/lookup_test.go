package lookup_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
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
	if len(got) == 0 {
		t.Error("localhost has no address")
	}
	for _, a := range got {
		if !a.IsLoopback() || a.Is4In6() {
			t.Errorf("localhost is %v", a)
		}
	}
}

// Only a link-local address of IPv6 without a zone needs one.
func TestNeedsZone(t *testing.T) {
	for a, want := range map[string]bool{
		"fe80::1": true, "fe80::1%eth7": false, "fd00::1": false, "::1": false, "169.254.0.1": false, "198.18.0.1": false,
	} {
		if got := lookup.NeedsZone(netip.MustParseAddr(a)); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
}

// A lack of descriptors or memory is no answer about the peer.
func TestExhausted(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		if !lookup.Exhausted(&net.OpError{Op: "dial", Err: errno}) {
			t.Errorf("%v", errno)
		}
	}
	for _, err := range []error{nil, syscall.EHOSTUNREACH, errors.New("other")} {
		if lookup.Exhausted(err) {
			t.Errorf("%v", err)
		}
	}
}
