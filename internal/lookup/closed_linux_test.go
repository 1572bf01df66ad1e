package lookup_test

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/lookup"
)

// Some of the destinations have no socket at the port.
func TestClosed(t *testing.T) {
	for _, src := range []string{"127.0.0.1", "::1"} {
		here := netip.MustParseAddr(src)
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(here, 0)))
		if err != nil {
			t.Skip(err)
		}
		open := conn.LocalAddr().(*net.UDPAddr).AddrPort()
		all, want := []netip.AddrPort{open}, []netip.AddrPort(nil)
		if here.Is4() {
			for a := netip.MustParseAddr("127.7.0.1"); len(want) < 20; a = a.Next() {
				want = append(want, netip.AddrPortFrom(a, open.Port()))
			}
		}
		got := lookup.Closed(t.Context(), here, append(all, want...), 200*time.Millisecond, payload)
		if slices.SortFunc(got, netip.AddrPort.Compare); !slices.Equal(got, want) {
			t.Errorf("closed: %v, want %v", got, want)
		}
		_ = conn.Close()
		if got := lookup.Closed(t.Context(), here, all, time.Hour, payload); !slices.Equal(got, all) {
			t.Errorf("closed: %v, want %v", got, all)
		}
	}
}

// The end of the context ends the wait.
func TestClosedEndsWithItsContext(t *testing.T) {
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	at := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	if got := lookup.Closed(ctx, netip.Addr{}, []netip.AddrPort{at}, time.Hour, payload); got != nil {
		t.Errorf("closed: %v", got)
	}
}

func payload(netip.AddrPort, netip.AddrPort) []byte { return []byte("nothing") }
