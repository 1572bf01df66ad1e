package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// option returns a socket option.
func option(t *testing.T, fd, level, opt int) int {
	t.Helper()
	n, err := unix.GetsockoptInt(fd, level, opt)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRequestedBuffers checks that the sockets get buffers of the requested sizes, which the kernel doubles.
func TestRequestedBuffers(t *testing.T) {
	const send, recv = 40 << 10, 50 << 10
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), SendBuffer: send, RecvBuffer: recv})
	p := l.ports[0]
	if n := option(t, p.tx[0].fd, unix.SOL_SOCKET, unix.SO_SNDBUF); n != 2*send {
		t.Errorf("a send buffer of %d bytes, want %d", n, 2*send)
	}
	if n := option(t, p.rx[0].fd, unix.SOL_SOCKET, unix.SO_RCVBUF); n != 2*recv || l.RecvBuffer() != n {
		t.Errorf("a receive buffer of %d bytes, %d according to the link, want %d", n, l.RecvBuffer(), 2*recv)
	}
}

// TestLearnedSettings checks that the link knows its shortest receive buffer, and that a socket that another process
// has opened merges packets although the link was to open none of these.
func TestLearnedSettings(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t), RecvBuffer: 50 << 10, NoGRO: true})
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	o := options{fd: fd}
	for _, c := range []struct{ size, want int }{{60 << 10, 100 << 10}, {20 << 10, 40 << 10}, {30 << 10, 40 << 10}} {
		o.set("SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF, c.size)
		if l.learn(fd); l.RecvBuffer() != c.want {
			t.Errorf("after a socket with 2 * %d bytes: the shortest buffer has %d, want %d", c.size, l.RecvBuffer(), c.want)
		}
	}
	if l.gro.Load() {
		t.Error("UDP_GRO although it is off")
	}
	o.set("UDP_GRO", unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	if l.learn(fd); o.err == nil && !l.gro.Load() {
		t.Error("a socket with UDP_GRO is read with short buffers")
	}
}

// TestTransmitSocketsReceiveNothing checks that datagrams to the source port of a link do not fill its memory.
func TestTransmitSocketsReceiveNothing(t *testing.T) {
	for _, a := range loopbacks {
		l := batchedLink(t, Config{Addrs: []netip.Addr{a}, Port: testPort(t)})
		to := l.ports[0].tx[0]
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, to.port)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if _, _, err := unix.Recvfrom(to.fd, make([]byte, 1), unix.MSG_DONTWAIT); err != unix.EAGAIN {
			t.Errorf("%v: a datagram is in the transmit socket (%v)", a, err)
		}
	}
}

// TestGroupsOfOneInterface checks that a group's socket gets no packets of interfaces on which other programs have
// joined the group.
func TestGroupsOfOneInterface(t *testing.T) {
	for _, c := range []struct {
		a          netip.Addr
		group      string
		level, opt int
	}{
		{lo4, "239.77.1.7", unix.IPPROTO_IP, unix.IP_MULTICAST_ALL},
		{lo6, "ff02::77:7", unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_ALL},
	} {
		if !has(loopbacks, c.a) {
			continue
		}
		l := batchedLink(t, Config{Addrs: []netip.Addr{c.a}, Port: testPort(t)})
		join(t, l, c.group)
		for _, s := range l.ports[0].rx {
			if s.addr.IsMulticast() && option(t, s.fd, c.level, c.opt) != 0 {
				t.Errorf("%s: packets of all interfaces arrive", c.group)
			}
		}
	}
}

// TestFlowLabels checks that packets leave with the flow label of their path.
func TestFlowLabels(t *testing.T) {
	if !has(loopbacks, lo6) {
		t.Skip("this machine has no IPv6")
	}
	const ipv6Flowinfo = 11 // IPV6_FLOWINFO of linux/in6.h
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo6}, Port: testPort(t)})
	c, err := net.ListenUDP("udp6", net.UDPAddrFromAddrPort(netip.AddrPortFrom(lo6, 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, ipv6Flowinfo, 1) })
	if err != nil {
		t.Fatal(err)
	}
	l.cfg.Port = c.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for _, label := range []uint32{0x12345, 0xFFFFF, 1} {
		sendAlong(l, &link.Path{Src: lo6, Dst: lo6, FlowLabel: label})
		oob := make([]byte, 128)
		_, n, _, _, err := c.ReadMsgUDP(make([]byte, 100), oob)
		if err != nil {
			t.Fatal(err)
		}
		got := uint32(0)
		list, _ := unix.ParseSocketControlMessage(oob[:n])
		for _, m := range list {
			if m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == ipv6Flowinfo {
				got = binary.BigEndian.Uint32(m.Data) & 0xFFFFF
			}
		}
		if got != label {
			t.Errorf("the flow label is 0x%x, want 0x%x", got, label)
		}
	}
}
