package rsocket_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

func TestR_SOCK_09_AcceptedSocketsInherit(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, func(l *rsocket.Socket) {
			p.ok(l.SetOptionInt(rsocket.SolSocket, rsocket.SoRcvBuf, 3000))
			p.ok(l.SetOptionInt(rsocket.SolSocket, rsocket.SoSndBuf, 5000))
			p.ok(l.SetOptionInt(rsocket.SolRDMA, rsocket.RDMASQSize, 20))
			p.ok(l.SetOptionInt(rsocket.SolRDMA, rsocket.RDMARQSize, 30))
			p.ok(l.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 4))
			p.ok(l.SetOptionInt(rsocket.IPProtoTCP, rsocket.TCPNoDelay, 1))
			l.SetNonblock(true)
			for { // its Accept must not wait
				fds := []rsocket.PollFD{{Socket: l, Events: rsocket.PollIn}}
				if n, err := rsocket.Poll(fds, 0); n == 0 {
					p.ok(err)
					break
				}
			}
			l.SetNonblock(false)
		})
		for _, o := range []struct{ level, name, want int }{
			{rsocket.SolSocket, rsocket.SoRcvBuf, 6000}, {rsocket.SolSocket, rsocket.SoSndBuf, 10000}, {rsocket.SolRDMA, rsocket.RDMASQSize, 20},
			{rsocket.SolRDMA, rsocket.RDMARQSize, 30}, {rsocket.SolRDMA, rsocket.RDMAIOMapSize, 4}, {rsocket.IPProtoTCP, rsocket.TCPNoDelay, 1},
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
		fresh := p.socket(p.a, rsocket.SockStream)
		if a := must(fresh.SockName())(p); a != netip.MustParseAddrPort("0.0.0.0:0") {
			t.Error(a)
		}
		_, err := fresh.PeerName()
		p.errno("no peer", err, syscall.ENOTCONN)
		c, s := p.sockets(nil, nil)
		if a, b := must(c.PeerName())(p), must(s.SockName())(p); a != b || a.Addr() != p.b.addr {
			t.Error(a, b)
		}
		if fl := must(c.Fcntl(rsocket.FGetFL, 0))(p); fl != 0 {
			t.Error(fl)
		}
		must(c.Fcntl(rsocket.FSetFL, rsocket.ONonblock))(p)
		if fl := must(c.Fcntl(rsocket.FGetFL, 0))(p); fl != rsocket.ONonblock {
			t.Error(fl)
		}
		_, err = c.Recv(make([]byte, 1), 0)
		p.errno("nothing there", err, syscall.EAGAIN)
		must(c.Fcntl(rsocket.FSetFD, 1))(p)
		if fd := must(c.Fcntl(rsocket.FGetFD, 0))(p); fd != 1 {
			t.Error(fd)
		}
		_, err = c.Fcntl(99, 0)
		p.errno("another command", err, syscall.ENOTSUP)
		p.closeSockets(fresh, c, s)
	})
}

func TestR_OPT_01_02_03_04_05_07_09_Options(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		if rsocket.SolRDMA != 0x10000 || rsocket.RDMASQSize != 0 || rsocket.RDMARQSize != 1 || rsocket.RDMAInline != 2 || rsocket.RDMAIOMapSize != 3 || rsocket.RDMARoute != 4 {
			t.Error("the numbers of options")
		}
		set := func(level, name, value int) func(*rsocket.Socket) {
			return func(s *rsocket.Socket) { p.ok(s.SetOptionInt(level, name, value)) }
		}
		for _, o := range []struct {
			level, name, fresh, value, want int
		}{
			{rsocket.SolSocket, rsocket.SoKeepAlive, 0, 1, 1}, {rsocket.SolSocket, rsocket.SoLinger, 1, 0, 0}, {rsocket.SolSocket, rsocket.SoOOBInline, 0, 1, 1},
			{rsocket.SolSocket, rsocket.SoRcvBuf, 131072, 1000, 2000}, {rsocket.SolSocket, rsocket.SoSndBuf, 131072, 1000, 4096},
			{rsocket.SolSocket, rsocket.SoReuseAddr, 0, 1, 1}, {rsocket.IPProtoTCP, rsocket.TCPNoDelay, 0, 1, 1}, {rsocket.IPProtoTCP, rsocket.TCPMaxSeg, 2048, 99, 2048},
			{rsocket.IPProtoTCP, rsocket.TCPKeepIdle, -1, 5, 5}, {rsocket.IPProtoTCP, rsocket.TCPKeepCnt, 1, 5, 1}, {rsocket.IPProtoTCP, rsocket.TCPKeepIntvl, 1, 5, 1},
			{rsocket.IPProtoTCP, rsocket.TCPCongestion, 1, 5, 1}, {rsocket.IPProtoIP, rsocket.IPTOS, 0, 0x68, 0x68},
			{rsocket.SolRDMA, rsocket.RDMASQSize, 384, 100000, 0xfffe}, {rsocket.SolRDMA, rsocket.RDMARQSize, 384, 17, 17}, {rsocket.SolRDMA, rsocket.RDMAInline, 64, 0, 0},
			{rsocket.SolRDMA, rsocket.RDMAIOMapSize, 0, 1000, 768},
		} {
			s := p.socket(p.a, rsocket.SockStream)
			if got := must(s.OptionInt(o.level, o.name))(p); got != o.fresh && o.fresh >= 0 {
				t.Errorf("option %d of %#x is %d at first, want %d", o.name, o.level, got, o.fresh)
			}
			set(o.level, o.name, o.value)(s)
			if got := must(s.OptionInt(o.level, o.name))(p); got != o.want {
				t.Errorf("option %d of %#x is %d, want %d", o.name, o.level, got, o.want)
			}
			p.ok(s.Close())
		}
		six := must(rsocket.NewSocketOn(p.a.host, rsocket.Inet6, rsocket.SockStream, 0))(p)
		set(rsocket.IPProtoIPv6, rsocket.IPv6V6Only, 1)(six)
		if must(six.OptionInt(rsocket.IPProtoIPv6, rsocket.IPv6V6Only))(p) != 1 {
			t.Error("IPV6_V6ONLY")
		}
		for _, o := range []struct{ level, name int }{{rsocket.SolSocket, 99}, {rsocket.IPProtoTCP, 99}, {99, 1}, {rsocket.SolRDMA, 5}, {rsocket.IPProtoIPv6, 1}, {rsocket.SolSocket, rsocket.SoBroadcast}, {rsocket.IPProtoTCP, rsocket.TCPInfo}} {
			p.errno("unknown", six.SetOptionInt(o.level, o.name, 1), syscall.ENOTSUP)
		}
		p.errno("too short", six.SetOption(rsocket.SolSocket, rsocket.SoKeepAlive, []byte{1}), syscall.EINVAL)
		p.errno("no time", six.SetOptionInt(rsocket.IPProtoTCP, rsocket.TCPKeepIdle, 0), syscall.EINVAL)
		_, err := six.OptionInt(rsocket.SolRDMA, 9)
		p.errno("unknown", err, syscall.ENOTSUP)
		if v, err := six.OptionInt(rsocket.SolSocket, rsocket.SoBroadcast); v != 0 || err != nil {
			t.Error(v, err)
		}
		var linger [8]byte
		if n, err := six.Option(rsocket.SolSocket, rsocket.SoLinger, linger[:]); n != 8 || err != nil || binary.NativeEndian.Uint64(linger[:]) != 1 {
			t.Error(n, err, linger)
		}
		if must(six.OptionInt(rsocket.IPProtoTCP, rsocket.TCPInfo))(p) != 7 {
			t.Error("the state is not CLOSE")
		}
		c, s := p.sockets(set(rsocket.SolRDMA, rsocket.RDMASQSize, 1), set(rsocket.SolRDMA, rsocket.RDMAInline, 100))
		for name := range 4 {
			p.errno("too late", c.SetOptionInt(rsocket.SolRDMA, name, 100), syscall.EINVAL)
		}
		if n := must(c.OptionInt(rsocket.SolRDMA, rsocket.RDMASQSize))(p); n != 16 {
			t.Errorf("a send queue of %d", n)
		}
		if n := must(s.OptionInt(rsocket.SolRDMA, rsocket.RDMAInline))(p); n < 100 {
			t.Errorf("%d bytes inline", n)
		}
		if n := must(c.OptionInt(rsocket.IPProtoTCP, rsocket.TCPMaxSeg))(p); n != 4096 {
			t.Errorf("a path MTU of %d", n)
		}
		if must(c.OptionInt(rsocket.IPProtoTCP, rsocket.TCPInfo))(p) != 1 {
			t.Error("the state is not ESTABLISHED")
		}
		p.closeSockets(six, c, s)
	})
}

func TestR_OPT_06_Route(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		buf := make([]byte, 200)
		_, err := c.Option(rsocket.SolRDMA, rsocket.RDMARoute, buf[:71])
		p.errno("too short", err, syscall.EINVAL)
		n := must(c.Option(rsocket.SolRDMA, rsocket.RDMARoute, buf))(p)
		if n != 72 || binary.NativeEndian.Uint32(buf) != 0x2b || buf[8+54] != 0x80|5 {
			t.Errorf("%d bytes: %x", n, buf[:n])
		}
		// Another connection takes the same way.
		l, at := p.server()
		d := p.socket(p.a, rsocket.SockStream)
		p.errno("no paths", d.SetOption(rsocket.SolRDMA, rsocket.RDMARoute, buf[:73]), syscall.EINVAL)
		p.errno("no path", d.SetOption(rsocket.SolRDMA, rsocket.RDMARoute, nil), syscall.EINVAL)
		p.ok(d.SetOption(rsocket.SolRDMA, rsocket.RDMARoute, buf[:n]))
		p.ok(d.Connect(at))
		again := make([]byte, 72)
		must(d.Option(rsocket.SolRDMA, rsocket.RDMARoute, again))(p)
		copy(again[8+44:8+48], buf[8+44:]) // the flow label follows the ports
		if !bytes.Equal(again, buf[:72]) {
			t.Errorf("the route is\n%x, not\n%x", again, buf[:72])
		}
		p.errno("too late", d.SetOption(rsocket.SolRDMA, rsocket.RDMARoute, buf[:n]), syscall.EINVAL)
		p.closeSockets(c, s, d, l)
	})
}
