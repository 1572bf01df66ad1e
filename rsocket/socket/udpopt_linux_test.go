package socket

import (
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
