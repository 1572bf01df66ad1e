package rsocket_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// After the deadline Accept and Read fail, even if a connection or data are present. Both stay queued.
func TestDeadlineBeforeData(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		c, err := p.dialer(rsocket.Options{}).Dial("tcp", l.Addr().String())
		p.OK(err)
		must(c.Write([]byte("hello")))(p)
		synctest.Wait()
		p.OK(l.SetDeadline(time.Now().Add(-time.Second)))
		for range 50 {
			if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("accept: %v", err)
			}
		}
		p.OK(l.SetDeadline(time.Time{}))
		s, err := l.Accept()
		p.OK(err)
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing: %d, %v", n, err)
		}
		p.OK(s.SetReadDeadline(time.Now().Add(-time.Second)))
		buf := make([]byte, 10)
		if n, err := s.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %d, %v", n, err)
		}
		p.OK(s.SetReadDeadline(time.Time{}))
		if n := must(s.Read(buf))(p); string(buf[:n]) != "hello" {
			t.Errorf("%q", buf[:n])
		}
		p.OK(c.Close())
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing at the end: %d, %v", n, err)
		}
		p.OK(s.Close())
		p.OK(l.Close())
	})
}

// A listener without an address listens at all addresses; with tcp6 or V6Only at all IPv6 addresses.
func TestListenEverywhere(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		for _, c := range []struct {
			network, address string
			v6only           bool
			addr             netip.Addr
			errno            syscall.Errno
		}{
			{"tcp", ":0", false, netip.IPv6Unspecified(), 0}, {"tcp", "[::]:0", true, netip.IPv6Unspecified(),
				syscall.ECONNREFUSED},
			{"tcp6", ":0", false, netip.IPv6Unspecified(), syscall.ECONNREFUSED}, {"tcp4", ":0", false,
				netip.IPv4Unspecified(), 0},
		} {
			l, err := (&rsocket.ListenConfig{Host: p.B.Host, V6Only: c.v6only}).Listen(bg, c.network, c.address)
			p.OK(err)
			at := l.Addr().(*net.TCPAddr).AddrPort()
			if at.Addr().Unmap() != c.addr {
				t.Errorf("%+v: %v", c, at)
			}
			conn, err := p.dialer(rsocket.Options{}).Dial("tcp", netip.AddrPortFrom(p.B.Addr, at.Port()).String())
			switch {
			case c.errno != 0 && !errors.Is(err, c.errno):
				t.Errorf("%+v: %v", c, err)
			case c.errno == 0 && err != nil:
				t.Errorf("%+v: %v", c, err)
			}
			if conn != nil {
				p.OK(conn.Close())
			}
			p.OK(l.Close())
		}
	})
}

// Dialer.LocalAddr is the local address of a connection.
func TestDialFrom(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		d := p.dialer(rsocket.Options{})
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.A.Addr, 4242))
		c, err := d.Dial("tcp", l.Addr().String())
		p.OK(err)
		s, err := l.Accept()
		p.OK(err)
		if c.LocalAddr().String() != d.LocalAddr.String() || s.RemoteAddr().String() != d.LocalAddr.String() {
			t.Errorf("the local address is %v, the peer's remote address %v", c.LocalAddr(), s.RemoteAddr())
		}
		p.OK(c.Close())
		p.OK(s.Close())
		p.OK(l.Close())
	})
}

// As in package net, both ends send keepalives unless KeepAlive is negative.
func TestKeepAliveByDefault(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, err := (&rsocket.ListenConfig{Host: p.B.Host}).Listen(bg, "tcp", p.B.At(0))
		p.OK(err)
		var ends [2]net.Conn
		ends[0], err = (&rsocket.Dialer{Host: p.A.Host}).Dial("tcp", l.Addr().String())
		p.OK(err)
		ends[1], err = l.Accept()
		p.OK(err)
		synctest.Wait() // until nothing is under way
		p.Fab.Cut(p.A.Addr, p.B.Addr)
		for i, c := range ends {
			p.OK(c.SetReadDeadline(time.Now().Add(time.Hour)))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("end %d: %v", i, err)
			}
		}
		for _, c := range ends {
			p.OK(c.Close())
		}
		p.OK(l.Close())
	})
}
