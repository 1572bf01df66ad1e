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

// A deadline that has come ends Accept and Read, also if there is something to be had; it is still there afterwards.
func TestDeadlineBeforeData(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		c, err := p.dialer(rsocket.Options{}).Dial("tcp", l.Addr().String())
		p.ok(err)
		must(c.Write([]byte("hello")))(p)
		synctest.Wait()
		p.ok(l.SetDeadline(time.Now().Add(-time.Second)))
		for range 50 {
			if _, err := l.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("accept: %v", err)
			}
		}
		p.ok(l.SetDeadline(time.Time{}))
		s, err := l.Accept()
		p.ok(err)
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing: %d, %v", n, err)
		}
		p.ok(s.SetReadDeadline(time.Now().Add(-time.Second)))
		buf := make([]byte, 10)
		if n, err := s.Read(buf); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %d, %v", n, err)
		}
		p.ok(s.SetReadDeadline(time.Time{}))
		if n := must(s.Read(buf))(p); string(buf[:n]) != "hello" {
			t.Errorf("%q", buf[:n])
		}
		p.ok(c.Close())
		if n, err := s.Read(nil); n != 0 || err != nil {
			t.Errorf("reading nothing at the end: %d, %v", n, err)
		}
		p.ok(s.Close())
		p.ok(l.Close())
	})
}

// Without an address a listener has all of them; of tcp6 and with V6Only all that are IPv6.
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
			l, err := (&rsocket.ListenConfig{Host: p.b.host, V6Only: c.v6only}).Listen(bg, c.network, c.address)
			p.ok(err)
			at := l.Addr().(*net.TCPAddr).AddrPort()
			if at.Addr().Unmap() != c.addr {
				t.Errorf("%+v: %v", c, at)
			}
			conn, err := p.dialer(rsocket.Options{}).Dial("tcp", netip.AddrPortFrom(p.b.addr, at.Port()).String())
			switch {
			case c.errno != 0 && !errors.Is(err, c.errno):
				t.Errorf("%+v: %v", c, err)
			case c.errno == 0 && err != nil:
				t.Errorf("%+v: %v", c, err)
			}
			if conn != nil {
				p.ok(conn.Close())
			}
			p.ok(l.Close())
		}
	})
}

// A connection begins at Dialer.LocalAddr.
func TestDialFrom(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		d := p.dialer(rsocket.Options{})
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.a.addr, 4242))
		c, err := d.Dial("tcp", l.Addr().String())
		p.ok(err)
		s, err := l.Accept()
		p.ok(err)
		if c.LocalAddr().String() != d.LocalAddr.String() || s.RemoteAddr().String() != d.LocalAddr.String() {
			t.Errorf("from %v, the peer says %v", c.LocalAddr(), s.RemoteAddr())
		}
		p.ok(c.Close())
		p.ok(s.Close())
		p.ok(l.Close())
	})
}

// As in package net both ends look after their peer unless they are told not to.
func TestKeepAliveByDefault(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, err := (&rsocket.ListenConfig{Host: p.b.host}).Listen(bg, "tcp", p.b.at(0))
		p.ok(err)
		var ends [2]net.Conn
		ends[0], err = (&rsocket.Dialer{Host: p.a.host}).Dial("tcp", l.Addr().String())
		p.ok(err)
		ends[1], err = l.Accept()
		p.ok(err)
		synctest.Wait() // until nothing is under way
		p.fab.Cut(p.a.addr, p.b.addr)
		for i, c := range ends {
			p.ok(c.SetReadDeadline(time.Now().Add(time.Hour)))
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ETIMEDOUT) {
				t.Errorf("end %d: %v", i, err)
			}
		}
		for _, c := range ends {
			p.ok(c.Close())
		}
		p.ok(l.Close())
	})
}
