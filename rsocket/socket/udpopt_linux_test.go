package socket

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
)

// Options of a datagram socket are also those of its UDP socket, whether they are set before that is there or
// later; those of SOL_RDMA are not.
func TestR_OPT_02_OptionsOfTheUDPSocket(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	dev, err := soft.New(soft.Config{Name: "opt", Addrs: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}
	host := rdmacm.NewHost(dev.Device)
	s, err := NewOn(host, Inet, SockDgram, 0)
	if err != nil {
		t.Fatal(err)
	}
	set := func(level, name, value int) {
		t.Helper()
		if err := s.SetOptionInt(level, name, value); err != nil {
			t.Error(err)
		}
	}
	of := func(level, name int) (v int) {
		t.Helper()
		raw, err := s.dg.UDPConn().SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) { v, err = unix.GetsockoptInt(int(fd), level, name) })
		if err != nil {
			t.Error(err)
		}
		return v
	}
	set(SolSocket, SoRcvBuf, 5000)
	set(IPProtoIP, IPTOS, 0x68)
	set(SolRDMA, RDMASQSize, 20)
	if err := s.Bind(netip.AddrPortFrom(addr, 0)); err != nil {
		t.Fatal(err)
	}
	set(SolSocket, SoSndBuf, 6000)
	set(SolSocket, SoKeepAlive, 1)
	for _, o := range []struct{ level, name, want int }{
		{unix.SOL_SOCKET, unix.SO_RCVBUF, 10000}, {unix.IPPROTO_IP, unix.IP_TOS, 0x68}, {unix.SOL_SOCKET, unix.SO_SNDBUF,
			12000}, {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		if got := of(o.level, o.name); got != o.want {
			t.Errorf("option %d of level %d: %d, want %d", o.name, o.level, got, o.want)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := host.Close(); err != nil {
		t.Error(err)
	}
}

// An option that only the system knows is the UDP socket's, and its errno is the system's: librdmacm passes them on.
func TestOptionsThatTheUDPSocketHasAlone(t *testing.T) {
	addr := netip.MustParseAddr("127.0.0.1")
	dev, err := soft.New(soft.Config{Name: "opt2", Addrs: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}
	host := rdmacm.NewHost(dev.Device)
	s, err := NewOn(host, Inet, SockDgram, 0)
	if err != nil {
		t.Fatal(err)
	}
	number := func(v byte) []byte { return []byte{v, 0, 0, v} } // not 0 on every machine
	for _, when := range []string{"before bind", "after bind"} {
		for _, o := range []struct {
			level, name int
			value       []byte
			want        error
		}{
			{SolSocket, SoBroadcast, number(1), nil}, {SolSocket, unix.SO_RCVTIMEO, make([]byte, 16), nil},
			{IPProtoIP, unix.IP_TTL, []byte{9}, nil}, {SolSocket, SoLinger, make([]byte, 8), nil},
			{SolSocket, SoLinger, number(1), unix.EINVAL},
			{SolSocket, 9999, number(1), unix.ENOPROTOOPT}, {SolSocket, unix.SO_TYPE, number(1), unix.ENOPROTOOPT},
			{IPProtoTCP, TCPNoDelay, number(1), unix.ENOPROTOOPT}, {IPProtoIP, unix.IP_TTL, nil, unix.EINVAL},
		} {
			if err := s.SetOption(o.level, o.name, o.value); !errors.Is(err, o.want) {
				t.Errorf("%s: option %d of level %d: %v, want %v", when, o.name, o.level, err, o.want)
			}
		}
		if when == "before bind" {
			if err := s.Bind(netip.AddrPortFrom(addr, 0)); err != nil {
				t.Fatal(err)
			}
		}
		raw, err := s.dg.UDPConn().SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			broadcast, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST)
			ttl, _ := unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL)
			if broadcast != 1 || ttl != 9 {
				t.Errorf("%s: SO_BROADCAST %d, IP_TTL %d", when, broadcast, ttl)
			}
		})
	}
	for _, c := range []interface{ Close() error }{s, host} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
