package lookup

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestOffenderOfASocketThatIsNotOpen(t *testing.T) {
	if got := offender(new(net.UDPConn)); got.IsValid() {
		t.Error(got)
	}
}

// Only the peer itself can say that its port is closed; others may say that it cannot be reached.
func TestHearsay(t *testing.T) {
	peer, router := netip.MustParseAddr("fe80::1%lo"), netip.MustParseAddr("fe80::2")
	for _, c := range []struct {
		err  error
		from netip.Addr
		want bool
	}{
		{syscall.ECONNREFUSED, peer.WithZone(""), false}, {syscall.ECONNREFUSED, router, true},
		{syscall.ECONNREFUSED, netip.Addr{}, true}, {syscall.EHOSTUNREACH, router, false}, {nil, router, false},
	} {
		if got := hearsay(c.err, c.from, peer); got != c.want {
			t.Errorf("%v from %v: %v", c.err, c.from, got)
		}
	}
}

// The error has the errno, the peer and the host that reported it.
func TestExplain(t *testing.T) {
	dst := netip.MustParseAddrPort("192.0.2.1:4791")
	router := netip.MustParseAddr("192.0.2.9")
	if err := explain(nil, router, dst); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		errno syscall.Errno
		from  netip.Addr
		want  string
	}{
		{syscall.EPERM, netip.Addr{}, "this host does not send to UDP port 4791 of 192.0.2.1"},
		{syscall.ECONNREFUSED, dst.Addr(), "closed, or a firewall there rejects it, says 192.0.2.1 (ICMP): start the server"},
		{syscall.EHOSTUNREACH, router, "or a firewall on the way rejects it, says 192.0.2.9 (ICMP): "},
		{syscall.EACCES, router, "or a firewall on the way rejects it, says 192.0.2.9 (ICMP): "},
		{syscall.EHOSTUNREACH, netip.Addr{}, "or a firewall on the way rejects it: "},
		{syscall.ENETUNREACH, router, "192.0.2.1 cannot be reached, says 192.0.2.9 (ICMP): "},
		{syscall.ENETUNREACH, netip.Addr{}, "192.0.2.1 cannot be reached: "},
	} {
		err := explain(c.errno, c.from, dst)
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v from %v: %q, want %q", c.errno, c.from, err, c.want)
		}
	}
	for err, want := range map[error]error{
		nil: nil, errors.New("other"): nil, &net.OpError{Op: "read", Err: syscall.EACCES}: syscall.EACCES,
	} {
		if got := errnoOnly(err); !errors.Is(got, want) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// The datagrams come from the address that the caller names, once a second, until ctx ends.
func TestProbesOfASource(t *testing.T) {
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dst := l.LocalAddr().(*net.UDPAddr).AddrPort()
	begin := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	var from []netip.AddrPort
	if err := Unreachable(ctx, netip.MustParseAddr("127.0.0.5"), dst, func(src, to netip.AddrPort) []byte {
		if len(from) == 0 {
			time.AfterFunc(turn+turn/2, cancel)
		}
		if from = append(from, src); to != dst {
			t.Errorf("to %v", to)
		}
		return []byte("probe")
	}); err != nil || ctx.Err() == nil {
		t.Errorf("%v before the end", err)
	}
	took := time.Since(begin)
	if took < again && len(from) != 1 || len(from) < 1 || from[0].Addr() != netip.MustParseAddr("127.0.0.5") ||
		from[0].Port() < 1024 {
		t.Errorf("%v in %v", from, took)
	}
	_ = l.SetReadDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 100)
	if n, src, err := l.ReadFromUDPAddrPort(b); err != nil || src != from[0] || string(b[:n]) != "probe" {
		t.Errorf("%q from %v, want %v: %v", b[:n], src, from, err)
	}
	if err := Unreachable(t.Context(), netip.MustParseAddr("192.0.2.99"), dst, nil); err == nil {
		t.Error("from an address of another host")
	}
}

// A datagram that cannot be sent is an answer.
func TestUnreachableTooLong(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := Unreachable(ctx, netip.Addr{}, netip.MustParseAddrPort("127.0.0.1:9"), func(_, _ netip.AddrPort) []byte {
		return make([]byte, 1<<16)
	})
	if !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("%v, want EMSGSIZE", err)
	}
}

// A question is not asked when ctx has ended, also if others are under way.
func TestUnreachableAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range cap(asking) {
		asking <- struct{}{}
	}
	err := Unreachable(ctx, netip.Addr{}, netip.MustParseAddrPort("127.0.0.1:9"), nil)
	for range cap(asking) {
		<-asking
	}
	if err != nil || cap(asking) != 8 {
		t.Errorf("%v; %d at a time", err, cap(asking))
	}
}
