package lookup_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/lookup"
	"github.com/verbena-rdma/verbena/internal/refuse"
	"github.com/verbena-rdma/verbena/internal/wire"
)

// TestProbe: the probe arrives whole, from the address that its ICRC is computed with.
func TestProbe(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(host), 0)))
		if err != nil {
			t.Logf("%s: %v", host, err) // no IPv6
			continue
		}
		defer l.Close()
		dst := l.LocalAddr().(*net.UDPAddr).AddrPort()
		ctx, cancel := context.WithCancel(context.Background())
		if err := lookup.Unreachable(ctx, netip.Addr{}, dst, func(src, dst netip.AddrPort) []byte {
			cancel() // one is enough
			return wire.Harmless(src, dst)
		}); err != nil {
			t.Errorf("%v: %v", dst, err)
		}
		if err := l.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		n, src, err := l.ReadFromUDPAddrPort(b)
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := wire.NewFlow(src.Addr(), dst.Addr(), src.Port(), dst.Port()).Verify(b[:n], 0); !ok || id != 0 {
			t.Errorf("%v: %d bytes with a wrong ICRC", dst, n)
		}
	}
}

// TestClosedPort: the system of the peer reports that nothing receives at a port.
func TestClosedPort(t *testing.T) {
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	dst := l.LocalAddr().(*net.UDPAddr).AddrPort()
	l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := lookup.Unreachable(ctx, netip.Addr{}, dst, wire.Harmless); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

// TestClosedPortSaidLate: hosts send few ICMP messages to one address, so the answer to the first datagram may be
// missing. Here a socket takes the first one.
func TestClosedPortSaidLate(t *testing.T) {
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _, _ = l.ReadFromUDPAddrPort(make([]byte, 100))
		l.Close()
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	dst := l.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := lookup.Unreachable(ctx, netip.Addr{}, dst, wire.Harmless); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%v", err)
	}
}

// TestUnreachableWithoutDescriptors: a process without a free descriptor learns nothing of the peer.
func TestUnreachableWithoutDescriptors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	var err error
	if e := refuse.Descriptors(func() {
		err = lookup.Unreachable(ctx, netip.Addr{}, netip.MustParseAddrPort("127.0.0.1:9"), wire.Harmless)
	}); e != nil {
		t.Fatal(e)
	}
	if err != nil {
		t.Error(err)
	}
}
