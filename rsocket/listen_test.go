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
			{"tcp", "", false, netip.IPv6Unspecified(), 0}, {"tcp4", "", false, netip.IPv4Unspecified(), 0},
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
			if err := l.(*rsocket.Listener).SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
				t.Errorf("SetDeadline after Close: %v", err)
			}
		}
		c, err := (&rsocket.ListenConfig{Host: p.B.Host}).ListenPacket(bg, "udp4", "")
		p.OK(err)
		if at := c.LocalAddr().(*net.UDPAddr).AddrPort(); !at.Addr().Unmap().IsUnspecified() || at.Port() == 0 {
			t.Errorf("the packets' socket has the address %v", at)
		}
		p.OK(c.Close())
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

// A local address without a port stands for any port.
func TestDialFromAnyPort(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l := p.listen(rsocket.Options{})
		d := p.dialer(rsocket.Options{})
		d.LocalAddr = &net.IPAddr{IP: p.A.Addr.AsSlice()}
		var conns [2]net.Conn
		for i := range conns {
			conns[i] = must(d.Dial("tcp", l.Addr().String()))(p)
			at := conns[i].LocalAddr().(*net.TCPAddr).AddrPort()
			if at.Addr().Unmap() != p.A.Addr || at.Port() < 2 {
				t.Errorf("from %v", at)
			}
		}
		for _, c := range conns {
			p.OK(c.Close())
		}
		p.OK(l.Close())
	})
}

// KeepAlive is the interval of the checks, the first of which comes one or two intervals after the last message: an
// end whose interval is 15 s longer notices the loss of its peer 15 to 30 s later. Below 0 there are none.
func TestKeepAliveInterval(t *testing.T) {
	lost := func(interval time.Duration) (after time.Duration, err error) {
		inBubble(t, rdmatest.Faults{}, func(p *places) {
			l := p.listen(rsocket.Options{})
			d := p.dialer(rsocket.Options{})
			d.KeepAlive = interval
			c := must(d.Dial("tcp", l.Addr().String()))(p)
			s := must(l.Accept())(p)
			synctest.Wait() // until nothing is under way
			p.Fab.Cut(p.A.Addr, p.B.Addr)
			start := time.Now()
			p.OK(c.SetReadDeadline(start.Add(time.Hour)))
			_, err = c.Read(make([]byte, 1))
			after = time.Since(start)
			p.OK(c.Close())
			p.OK(s.Close())
			p.OK(l.Close())
			time.Sleep(time.Hour) // until the rest has given up
		})
		return after, err
	}
	short, err := lost(time.Second)
	if !errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("every second: %v", err)
	}
	long, err := lost(16 * time.Second)
	if more := long - short; !errors.Is(err, syscall.ETIMEDOUT) || more < 14*time.Second || more > 31*time.Second {
		t.Errorf("every 16 s: %v, %v later than every second", err, more)
	}
	if _, err := lost(-1); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("turned off: %v", err)
	}
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
