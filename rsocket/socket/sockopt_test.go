package socket_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

func TestR_SOCK_09_AcceptedSocketsInherit(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, func(l *socket.Socket) {
			p.OK(l.SetOptionInt(socket.SolSocket, socket.SoRcvBuf, 3000))
			p.OK(l.SetOptionInt(socket.SolSocket, socket.SoSndBuf, 5000))
			p.OK(l.SetOptionInt(socket.SolRDMA, socket.RDMASQSize, 20))
			p.OK(l.SetOptionInt(socket.SolRDMA, socket.RDMARQSize, 30))
			p.OK(l.SetOptionInt(socket.SolRDMA, socket.RDMAIOMapSize, 4))
			p.OK(l.SetOptionInt(socket.IPProtoTCP, socket.TCPNoDelay, 1))
			l.SetNonblock(true)
			for { // its Accept must not wait
				fds := []socket.PollFD{{Socket: l, Events: socket.PollIn}}
				if n, err := socket.Poll(fds, 0); n == 0 {
					p.OK(err)
					break
				}
			}
			l.SetNonblock(false)
		})
		for _, o := range []struct{ level, name, want int }{
			{socket.SolSocket, socket.SoRcvBuf, 6000}, {socket.SolSocket, socket.SoSndBuf, 10000}, {socket.SolRDMA,
				socket.RDMASQSize, 20},
			{socket.SolRDMA, socket.RDMARQSize, 30}, {socket.SolRDMA, socket.RDMAIOMapSize, 4}, {socket.IPProtoTCP,
				socket.TCPNoDelay, 1},
		} {
			if got := must(s.OptionInt(o.level, o.name))(p); got != o.want {
				t.Errorf("option %d of %#x: %d, want %d", o.name, o.level, got, o.want)
			}
		}
		p.closeSockets(c, s)
	})
}

func TestR_NAME_01_R_FCNTL_01_02_NamesAndFlags(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		fresh := p.socket(p.A, socket.SockStream)
		if a := must(fresh.SockName())(p); a != netip.MustParseAddrPort("0.0.0.0:0") {
			t.Error(a)
		}
		_, err := fresh.PeerName()
		p.errno("no peer", err, syscall.ENOTCONN)
		c, s := p.sockets(nil, nil)
		if a, b := must(c.PeerName())(p), must(s.SockName())(p); a != b || a.Addr() != p.B.Addr {
			t.Error(a, b)
		}
		if fl := must(c.Fcntl(socket.FGetFL, 0))(p); fl != 0 {
			t.Error(fl)
		}
		must(c.Fcntl(socket.FSetFL, socket.ONonblock))(p)
		if fl := must(c.Fcntl(socket.FGetFL, 0))(p); fl != socket.ONonblock {
			t.Error(fl)
		}
		_, err = c.Recv(make([]byte, 1), 0)
		p.errno("nothing there", err, syscall.EAGAIN)
		must(c.Fcntl(socket.FSetFD, 1))(p)
		if fd := must(c.Fcntl(socket.FGetFD, 0))(p); fd != 1 {
			t.Error(fd)
		}
		_, err = c.Fcntl(99, 0)
		p.errno("another command", err, syscall.ENOTSUP)
		p.closeSockets(fresh, c, s)
	})
}

func TestR_OPT_01_02_03_04_05_07_09_Options(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		if socket.SolRDMA != 0x10000 || socket.RDMASQSize != 0 || socket.RDMARQSize != 1 || socket.RDMAInline != 2 ||
			socket.RDMAIOMapSize != 3 || socket.RDMARoute != 4 {
			t.Error("wrong numbers of options")
		}
		set := func(level, name, value int) func(*socket.Socket) {
			return func(s *socket.Socket) { p.OK(s.SetOptionInt(level, name, value)) }
		}
		for _, o := range []struct {
			level, name, fresh, value, want int
		}{
			{socket.SolSocket, socket.SoKeepAlive, 0, 1, 1}, {socket.SolSocket, socket.SoLinger, 1, 0, 0}, {socket.SolSocket,
				socket.SoOOBInline, 0, 1, 1},
			{socket.SolSocket, socket.SoRcvBuf, 131072, 1000, 2000}, {socket.SolSocket, socket.SoSndBuf, 131072, 1000, 4096},
			{socket.SolSocket, socket.SoReuseAddr, 0, 1, 1}, {socket.IPProtoTCP, socket.TCPNoDelay, 0, 1, 1},
			{socket.IPProtoTCP, socket.TCPMaxSeg, 2048, 99, 2048},
			{socket.IPProtoTCP, socket.TCPKeepIdle, -1, 5, 5}, {socket.IPProtoTCP, socket.TCPKeepCnt, 1, 5, 1},
			{socket.IPProtoTCP, socket.TCPKeepIntvl, 1, 5, 1},
			{socket.IPProtoTCP, socket.TCPCongestion, 1, 5, 1}, {socket.IPProtoIP, socket.IPTOS, 0, 0x68, 0x68},
			{socket.SolRDMA, socket.RDMASQSize, 384, 100000, 0xfffe}, {socket.SolRDMA, socket.RDMARQSize, 384, 17, 17},
			{socket.SolRDMA, socket.RDMAInline, 64, 0, 0},
			{socket.SolRDMA, socket.RDMAIOMapSize, 0, 1000, 768},
		} {
			s := p.socket(p.A, socket.SockStream)
			if got := must(s.OptionInt(o.level, o.name))(p); got != o.fresh && o.fresh >= 0 {
				t.Errorf("option %d of %#x is %d at first, want %d", o.name, o.level, got, o.fresh)
			}
			set(o.level, o.name, o.value)(s)
			if got := must(s.OptionInt(o.level, o.name))(p); got != o.want {
				t.Errorf("option %d of %#x is %d, want %d", o.name, o.level, got, o.want)
			}
			p.OK(s.Close())
		}
		six := must(socket.NewOn(p.A.Host, socket.Inet6, socket.SockStream, 0))(p)
		set(socket.IPProtoIPv6, socket.IPv6V6Only, 1)(six)
		if must(six.OptionInt(socket.IPProtoIPv6, socket.IPv6V6Only))(p) != 1 {
			t.Error("IPV6_V6ONLY")
		}
		for _, o := range []struct{ level, name int }{{socket.SolSocket, 99}, {socket.IPProtoTCP, 99}, {99, 1},
			{socket.SolRDMA, 5}, {socket.IPProtoIPv6, 1}, {socket.SolSocket, socket.SoBroadcast}, {socket.IPProtoTCP,
				socket.TCPInfo}} {
			p.errno("unknown", six.SetOptionInt(o.level, o.name, 1), syscall.ENOTSUP)
		}
		p.errno("too short", six.SetOption(socket.SolSocket, socket.SoKeepAlive, []byte{1}), syscall.EINVAL)
		p.errno("no time", six.SetOptionInt(socket.IPProtoTCP, socket.TCPKeepIdle, 0), syscall.EINVAL)
		_, err := six.OptionInt(socket.SolRDMA, 9)
		p.errno("unknown", err, syscall.ENOTSUP)
		if v, err := six.OptionInt(socket.SolSocket, socket.SoBroadcast); v != 0 || err != nil {
			t.Error(v, err)
		}
		var linger [8]byte
		if n, err := six.Option(socket.SolSocket, socket.SoLinger, linger[:]); n != 8 || err != nil ||
			binary.NativeEndian.Uint64(linger[:]) != 1 {
			t.Error(n, err, linger)
		}
		if must(six.OptionInt(socket.IPProtoTCP, socket.TCPInfo))(p) != 7 {
			t.Error("the state is not CLOSE")
		}
		c, s := p.sockets(set(socket.SolRDMA, socket.RDMASQSize, 1), set(socket.SolRDMA, socket.RDMAInline, 100))
		for name := range 4 {
			p.errno("too late", c.SetOptionInt(socket.SolRDMA, name, 100), syscall.EINVAL)
		}
		if n := must(c.OptionInt(socket.SolRDMA, socket.RDMASQSize))(p); n != 16 {
			t.Errorf("a send queue of %d", n)
		}
		if n := must(s.OptionInt(socket.SolRDMA, socket.RDMAInline))(p); n < 100 {
			t.Errorf("%d bytes inline", n)
		}
		if n := must(c.OptionInt(socket.IPProtoTCP, socket.TCPMaxSeg))(p); n != 4096 {
			t.Errorf("a path MTU of %d", n)
		}
		if must(c.OptionInt(socket.IPProtoTCP, socket.TCPInfo))(p) != 1 {
			t.Error("the state is not ESTABLISHED")
		}
		p.closeSockets(six, c, s)
	})
}

// IP_TOS may be one byte, as that of rdma_set_option and of the kernel's sockets.
func TestTypeOfServiceIsOneByteOrMore(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s := p.socket(p.A, socket.SockStream)
		for _, value := range [][]byte{{0x68}, {0x6c, 0xff}, binary.NativeEndian.AppendUint32(nil, 0x70)} {
			want := value[0]
			if len(value) == 4 {
				want = 0x70
			}
			p.OK(s.SetOption(socket.IPProtoIP, socket.IPTOS, value))
			if got := must(s.OptionInt(socket.IPProtoIP, socket.IPTOS))(p); got != int(want) {
				t.Errorf("% x: %#x, want %#x", value, got, want)
			}
			var one [1]byte
			if n, err := s.Option(socket.IPProtoIP, socket.IPTOS, one[:]); n != 1 || err != nil || one[0] != want {
				t.Errorf("% x: one byte is %#x, %d, %v", value, one, n, err)
			}
		}
		p.errno("no byte", s.SetOption(socket.IPProtoIP, socket.IPTOS, nil), syscall.EINVAL)
		_, err := s.Option(socket.IPProtoIP, socket.IPTOS, nil)
		p.errno("room for none", err, syscall.EINVAL)
		p.closeSockets(s)
	})
}

// TCP_INFO is a struct tcp_info: the state is its first byte, the window has the size of the send queue, the rest is 0.
func TestTCPInfoIsAStruct(t *testing.T) {
	const size, cwnd = 104, 80
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(func(c *socket.Socket) { p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMASQSize, 50)) }, nil)
		for _, room := range []int{300, size, cwnd + 4, cwnd + 1, 5} {
			b := bytes.Repeat([]byte{0xee}, room)
			want := make([]byte, size)
			want[0] = 1
			binary.NativeEndian.PutUint32(want[cwnd:], 50)
			want = want[:min(room, size)]
			n, err := c.Option(socket.IPProtoTCP, socket.TCPInfo, b)
			if n != len(want) || err != nil || !bytes.Equal(b[:n], want) {
				t.Errorf("room for %d bytes: %d, %v, % x", room, n, err, b)
			}
		}
		p.closeSockets(c, s)
	})
}

// An option that cannot be changed any more keeps its value.
func TestRefusedOptionsKeepTheirValue(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, _ := p.server()
		for _, o := range []struct{ level, name int }{{socket.SolSocket, socket.SoReuseAddr},
			{socket.IPProtoIPv6, socket.IPv6V6Only}} {
			p.errno("of a listener", l.SetOptionInt(o.level, o.name, 1), syscall.EINVAL)
			if got := must(l.OptionInt(o.level, o.name))(p); got != 0 {
				t.Errorf("option %d of %#x is %d, want 0", o.name, o.level, got)
			}
		}
		p.closeSockets(l)
	})
}

// SO_REUSEADDR, IPV6_V6ONLY and IP_TOS have their effects on addresses, ports and packets.
func TestR_OPT_01_04_05_AddressesAndTypeOfService(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, at := p.server()
		var all []*socket.Socket
		bind := func(domain socket.Domain, a netip.AddrPort, option func(*socket.Socket)) error {
			s := must(socket.NewOn(p.B.Host, domain, socket.SockStream, 0))(p)
			all = append(all, s)
			if option != nil {
				option(s)
			}
			return s.Bind(a)
		}
		set := func(level, name int) func(*socket.Socket) {
			return func(s *socket.Socket) { p.OK(s.SetOptionInt(level, name, 1)) }
		}
		reuse, only := set(socket.SolSocket, socket.SoReuseAddr), set(socket.IPProtoIPv6, socket.IPv6V6Only)
		port := func(n uint16) netip.AddrPort { return netip.AddrPortFrom(p.B.Addr, n) }
		p.OK(bind(socket.Inet, port(5001), reuse))
		p.OK(bind(socket.Inet, port(5001), reuse))
		p.errno("SO_REUSEADDR at one end", bind(socket.Inet, port(5001), nil), syscall.EADDRINUSE)
		any4, any6 := netip.IPv4Unspecified(), netip.IPv6Unspecified()
		p.OK(bind(socket.Inet6, netip.AddrPortFrom(any6, 5002), only))
		p.OK(bind(socket.Inet, netip.AddrPortFrom(any4, 5002), nil))
		p.OK(bind(socket.Inet6, netip.AddrPortFrom(any6, 5003), nil))
		p.errno("without IPV6_V6ONLY", bind(socket.Inet, netip.AddrPortFrom(any4, 5003), nil), syscall.EADDRNOTAVAIL)
		c := p.socket(p.A, socket.SockStream)
		p.OK(c.SetOptionInt(socket.IPProtoIP, socket.IPTOS, 0x68))
		p.OK(c.Connect(at))
		var path [72]byte
		must(c.Option(socket.SolRDMA, socket.RDMARoute, path[:]))(p)
		if got := path[8+48]; got != 0x68 {
			t.Errorf("the connection's path has traffic class %#x", got)
		}
		p.closeSockets(append(all, c, l)...)
	})
}

func TestR_OPT_06_Route(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		buf := make([]byte, 200)
		_, err := c.Option(socket.SolRDMA, socket.RDMARoute, buf[:71])
		p.errno("too short", err, syscall.EINVAL)
		n := must(c.Option(socket.SolRDMA, socket.RDMARoute, buf))(p)
		if n != 72 || binary.NativeEndian.Uint32(buf) != 0x2b || buf[8+54] != 0x80|5 {
			t.Errorf("%d bytes: %x", n, buf[:n])
		}
		// Another connection takes the same way.
		l, at := p.server()
		d := p.socket(p.A, socket.SockStream)
		p.errno("no paths", d.SetOption(socket.SolRDMA, socket.RDMARoute, buf[:73]), syscall.EINVAL)
		p.errno("no path", d.SetOption(socket.SolRDMA, socket.RDMARoute, nil), syscall.EINVAL)
		p.OK(d.SetOption(socket.SolRDMA, socket.RDMARoute, buf[:n]))
		p.OK(d.Connect(at))
		again := make([]byte, 72)
		must(d.Option(socket.SolRDMA, socket.RDMARoute, again))(p)
		copy(again[8+44:8+48], buf[8+44:]) // the flow label follows the ports
		if !bytes.Equal(again, buf[:72]) {
			t.Errorf("the route is\n%x, not\n%x", again, buf[:72])
		}
		p.errno("too late", d.SetOption(socket.SolRDMA, socket.RDMARoute, buf[:n]), syscall.EINVAL)
		p.closeSockets(c, s, d, l)
	})
}

// The inline size that is told is what the QP got: at least what control messages need, whatever was asked for.
func TestR_OPT_05_InlineOfTheQP(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		const control = 24
		none := func(s *socket.Socket) { p.OK(s.SetOptionInt(socket.SolRDMA, socket.RDMAInline, 0)) }
		c, s := p.sockets(none, none)
		for _, s := range []*socket.Socket{c, s} {
			if n := must(s.OptionInt(socket.SolRDMA, socket.RDMAInline))(p); n < control {
				t.Errorf("%d bytes inline", n)
			}
		}
		must(c.Send([]byte("x"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		p.closeSockets(c, s)
	})
}

// Sizes of buffers that exist do not change, and are told as they are.
func TestBufferSizesAfterConnecting(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		set := func(v int) func(*socket.Socket) {
			return func(s *socket.Socket) {
				p.OK(s.SetOptionInt(socket.SolSocket, socket.SoRcvBuf, v))
				p.OK(s.SetOptionInt(socket.SolSocket, socket.SoSndBuf, v))
			}
		}
		c, s := p.sockets(set(5000), set(6000))
		for s, want := range map[*socket.Socket]int{c: 10000, s: 12000} {
			set(7000)(s)
			for _, name := range []int{socket.SoRcvBuf, socket.SoSndBuf} {
				if got := must(s.OptionInt(socket.SolSocket, name))(p); got != want {
					t.Errorf("option %d is %d, want %d", name, got, want)
				}
			}
		}
		p.closeSockets(c, s)
	})
}

// Flags without meaning change nothing (MSG_OOB 1, MSG_NOSIGNAL 0x4000).
func TestR_OPT_08_OtherFlags(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	c, s := p.sockets(nil, nil)
	must(c.Send([]byte("hello"), 1|0x4000))(p)
	buf := make([]byte, 10)
	if n := must(s.Recv(buf, 1|0x4000))(p); string(buf[:n]) != "hello" {
		t.Errorf("%q", buf[:n])
	}
	p.closeSockets(c, s)
}

// The time of keepalive is the system's.
func TestW_RS_32_KeepAliveTime(t *testing.T) {
	want := 7200
	if text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_keepalive_time"); err == nil {
		want, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s := p.socket(p.A, socket.SockStream)
		if got := must(s.OptionInt(socket.IPProtoTCP, socket.TCPKeepIdle))(p); got != want {
			t.Errorf("%d seconds, want %d", got, want)
		}
		p.OK(s.Close())
	})
}

// TestUnacked checks that the bytes of the send buffer are counted until the peer has them.
func TestUnacked(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		unacked := func() int { return must(c.OptionInt(socket.SolRDMA, socket.RDMAUnacked))(p) }
		if n := unacked(); n != 0 {
			p.Errorf("%d bytes before the first one", n)
		}
		must(c.Send(make([]byte, 5000), 0))(p)
		if n := unacked(); n != 0 && n != 5000 {
			p.Errorf("%d bytes of 5000", n)
		}
		must(s.Recv(make([]byte, 5000), socket.MsgWaitAll))(p)
		p.OK(c.Shutdown(socket.ShutWrite)) // waits for the acknowledgement
		if n := unacked(); n != 0 {
			p.Errorf("%d bytes after all were received", n)
		}
		p.closeSockets(c, s)
	})
}
