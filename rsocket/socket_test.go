package rsocket_test

import (
	"bytes"
	"errors"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

// socket makes a stream socket on a host.
func (p *places) socket(at place, typ rsocket.Type) *rsocket.Socket {
	p.Helper()
	return must(rsocket.NewSocketOn(at.host, rsocket.Inet, typ, 0))(p)
}

// server makes a listening socket on host b.
func (p *places) server() (*rsocket.Socket, netip.AddrPort) {
	p.Helper()
	l := p.socket(p.b, rsocket.SockStream)
	p.ok(l.Bind(netip.AddrPortFrom(p.b.addr, 0)))
	p.ok(l.Listen(0))
	return l, must(l.SockName())(p)
}

// sockets is a connection between sockets. Options are set by the functions before it is made.
func (p *places) sockets(client, server func(*rsocket.Socket)) (c, s *rsocket.Socket) {
	p.Helper()
	l, at := p.server()
	defer l.Close()
	if server != nil {
		server(l)
	}
	c = p.socket(p.a, rsocket.SockStream)
	if client != nil {
		client(c)
	}
	p.ok(c.Connect(at))
	s, from, err := l.Accept()
	p.ok(err)
	if name := must(c.SockName())(p); from != name {
		p.Errorf("accepted from %v, the client is %v", from, name)
	}
	return c, s
}

func (p *places) closeSockets(list ...*rsocket.Socket) {
	p.Helper()
	for _, s := range list {
		p.ok(s.Close())
	}
}

func (p *places) errno(what string, err error, want syscall.Errno) {
	p.Helper()
	if !errors.Is(err, want) {
		p.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestR_SOCK_01_02_03_Kinds(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		for _, c := range []struct {
			domain rsocket.Domain
			typ    rsocket.Type
			proto  int
			ok     bool
		}{
			{rsocket.Inet, rsocket.SockStream, 0, true}, {rsocket.Inet6, rsocket.SockStream, rsocket.ProtoTCP, true},
			{rsocket.Inet, rsocket.SockDgram, 0, true}, {rsocket.Inet6, rsocket.SockDgram, rsocket.ProtoUDP, true},
			{rsocket.Inet, rsocket.SockStream | rsocket.SockNonblock | rsocket.SockCloexec, 0, true},
			{1, rsocket.SockStream, 0, false}, {rsocket.Inet, 3, 0, false}, {rsocket.Inet, rsocket.SockStream, rsocket.ProtoUDP, false},
			{rsocket.Inet, rsocket.SockDgram, rsocket.ProtoTCP, false}, {27, rsocket.SockStream, 0, false},
		} {
			s, err := rsocket.NewSocketOn(p.a.host, c.domain, c.typ, c.proto)
			if c.ok {
				p.ok(err)
				p.ok(s.Close())
			} else {
				p.errno("kind", err, syscall.ENOTSUP)
			}
		}
	})
}

func TestR_SOCK_05_06_07_08_BindListenAccept(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s := p.socket(p.b, rsocket.SockStream)
		_, _, err := s.Accept()
		p.errno("accept without listen", err, syscall.EBADF)
		p.errno("another family", s.Bind(netip.MustParseAddrPort("[::1]:1")), syscall.EINVAL)
		p.errno("no address of a device", s.Bind(netip.MustParseAddrPort("198.18.0.99:1")), syscall.ENODEV)
		p.ok(s.Bind(netip.AddrPortFrom(p.b.addr, 7000)))
		other := p.socket(p.b, rsocket.SockStream)
		p.errno("a port in use", other.Bind(netip.AddrPortFrom(p.b.addr, 7000)), syscall.EADDRINUSE)
		p.ok(s.Listen(1))
		p.ok(s.Listen(1)) // changes nothing
		p.errno("a listener connects", s.Connect(netip.AddrPortFrom(p.b.addr, 7001)), syscall.EINVAL)
		p.closeSockets(s, other)
		c, a := p.sockets(nil, nil) // compares the addresses
		p.closeSockets(c, a)
	})
}

func TestR_SOCK_10_11_12_R_POLL_03_04_Nonblocking(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		l, at := p.server()
		l.SetNonblock(true)
		_, _, err := l.Accept()
		p.errno("nothing to accept", err, syscall.EAGAIN)
		if e := p.poll(l, rsocket.PollIn, 0); e != 0 {
			t.Errorf("a listener has %#x", e)
		}
		c := p.socket(p.a, rsocket.SockStream|rsocket.SockNonblock)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		if e := p.poll(c, inOut, 0); e != 0 {
			t.Errorf("a connecting socket has %#x", e)
		}
		n, err := c.Send([]byte("x"), 0)
		if p.errno("send while connecting", err, syscall.EAGAIN); n != 0 {
			t.Error(n)
		}
		_, err = c.Recv(make([]byte, 1), 0)
		p.errno("receive while connecting", err, syscall.EAGAIN)
		if e := p.poll(c, inOut, -1); e != rsocket.PollOut {
			t.Errorf("a connected socket has %#x", e)
		}
		if v := must(c.OptionInt(rsocket.SolSocket, rsocket.SoError))(p); v != 0 {
			t.Errorf("SO_ERROR %d", v)
		}
		if e := p.poll(l, rsocket.PollIn, -1); e != rsocket.PollIn {
			t.Errorf("a listener has %#x", e)
		}
		s, _, err := l.Accept()
		p.ok(err)
		_, err = s.Recv(make([]byte, 1), 0)
		p.errno("the accepted socket does not block", err, syscall.EAGAIN)

		failing := p.socket(p.a, rsocket.SockStream|rsocket.SockNonblock)
		p.errno("connect", failing.Connect(netip.AddrPortFrom(p.b.addr, 1)), syscall.EINPROGRESS)
		if e := p.poll(failing, inOut, -1); e != inOut|rsocket.PollErr {
			t.Errorf("a refused socket has %#x", e)
		}
		if v := must(failing.OptionInt(rsocket.SolSocket, rsocket.SoError))(p); syscall.Errno(v) != syscall.ECONNREFUSED {
			t.Errorf("SO_ERROR %d", v)
		}
		if v := must(failing.OptionInt(rsocket.SolSocket, rsocket.SoError))(p); v != 0 {
			t.Errorf("SO_ERROR is %d once more", v)
		}
		p.closeSockets(c, s, failing, l)
	})
}

func TestR_SOCK_13_BlockingIOFinishesConnecting(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		l, at := p.server()
		c := p.socket(p.a, rsocket.SockStream|rsocket.SockNonblock)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		c.SetNonblock(false)
		if n := must(c.Send([]byte("hello"), 0))(p); n != 5 {
			t.Error(n)
		}
		s, _, err := l.Accept()
		p.ok(err)
		p.closeSockets(c, s, l)
	})
}

func TestR_SOCK_18_ConnectTwice(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		p.ok(c.Connect(must(c.PeerName())(p)))
		p.ok(s.Close())
		synctest.Wait()
		_, _ = c.Recv(make([]byte, 1), 0)
		p.errno("after the end", c.Connect(netip.AddrPortFrom(p.b.addr, 1)), syscall.ENOTCONN)
		failed := p.socket(p.a, rsocket.SockStream)
		p.errno("refused", failed.Connect(netip.AddrPortFrom(p.b.addr, 1)), syscall.ECONNREFUSED)
		p.errno("after a refusal", failed.Connect(netip.AddrPortFrom(p.b.addr, 1)), syscall.ENOTCONN)
		_, err := failed.Send([]byte("x"), 0)
		p.errno("send after a refusal", err, syscall.ECONNREFUSED)
		p.closeSockets(c, failed)
	})
}

func TestR_IO_01_02_05_06_07_08_19_Flags(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		buf := make([]byte, 300000)
		_, err := s.Recv(buf, rsocket.MsgDontWait)
		p.errno("nothing there", err, syscall.EAGAIN)
		if n := must(c.Send(nil, 0))(p); n != 0 {
			t.Errorf("nothing sent is %d bytes", n)
		}
		must(c.Send([]byte("hello"), 0))(p)
		for range 2 {
			if n := must(s.Recv(buf[:3], rsocket.MsgPeek))(p); string(buf[:n]) != "hel" {
				t.Errorf("peeked %q", buf[:n])
			}
		}
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "hello" {
			t.Errorf("received %q", buf[:n])
		}
		// All of it, though it comes in pieces.
		var w sync.WaitGroup
		w.Go(func() {
			for range 5 {
				time.Sleep(time.Second)
				must(c.Send([]byte("12345"), 0))(p)
			}
		})
		if n := must(s.Recv(buf[:25], rsocket.MsgWaitAll))(p); n != 25 {
			t.Errorf("%d bytes of 25", n)
		}
		w.Wait()
		// As much as there is room for.
		n := must(c.Send(buf, rsocket.MsgDontWait))(p)
		if n == 0 || n >= len(buf) {
			t.Errorf("%d bytes of %d", n, len(buf))
		}
		_, err = c.Send(buf, rsocket.MsgDontWait)
		for err == nil {
			_, err = c.Send(buf, rsocket.MsgDontWait)
		}
		p.errno("no room", err, syscall.EAGAIN)
		p.closeSockets(c, s)
	})
}

func TestR_IO_09_10_11_12_13_Variants(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		buf := make([]byte, 100)
		must(c.Write([]byte("one")))(p)
		if n := must(s.Read(buf))(p); string(buf[:n]) != "one" {
			t.Errorf("%q", buf[:n])
		}
		if n := must(c.Writev([][]byte{[]byte("t"), nil, []byte("wo")}))(p); n != 3 {
			t.Error(n)
		}
		synctest.Wait()                                                                       // the pieces come one by one
		if n := must(s.Readv([][]byte{nil, buf[:2], buf[50:]}))(p); string(buf[:n]) != "tw" { // a short read
			t.Errorf("%q", buf[:n])
		}
		must(s.Read(buf))(p)
		must(c.SendMsg(&rsocket.Msg{IOV: [][]byte{[]byte("three")}}, 0))(p)
		m := rsocket.Msg{IOV: [][]byte{buf}}
		if n := must(s.RecvMsg(&m, 0))(p); string(buf[:n]) != "three" || m.Name != must(c.SockName())(p) {
			t.Errorf("%q from %v", buf[:n], m.Name)
		}
		_, err := c.SendMsg(&rsocket.Msg{Control: []byte{1}}, 0)
		p.errno("ancillary data", err, syscall.ENOTSUP)
		_, err = c.RecvMsg(&rsocket.Msg{Control: []byte{1}}, 0)
		p.errno("ancillary data", err, syscall.ENOTSUP)
		_, err = c.SendTo([]byte("x"), 0, must(c.PeerName())(p))
		p.errno("sendto", err, syscall.EISCONN)
		must(c.SendTo([]byte("four"), 0, netip.AddrPort{}))(p)
		n, from, err := s.RecvFrom(buf, 0)
		p.ok(err)
		if string(buf[:n]) != "four" || from != must(c.SockName())(p) {
			t.Errorf("%q from %v", buf[:n], from)
		}
		p.closeSockets(c, s)
	})
}

func TestR_SHUT_01_03_04_05_06_Shutdown(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		c, s := p.sockets(nil, nil)
		p.errno("how", c.Shutdown(3), syscall.EINVAL)
		c.SetNonblock(true)
		must(c.Send([]byte("last"), 0))(p)
		start := time.Now()
		p.ok(c.Shutdown(rsocket.ShutBoth))
		if time.Since(start) < 2*time.Millisecond {
			t.Error("it did not wait for the acknowledgement")
		}
		buf := make([]byte, 10)
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "last" {
			t.Errorf("%q", buf[:n])
		}
		if n := must(s.Recv(buf, 0))(p); n != 0 {
			t.Errorf("%d bytes after the end", n)
		}
		_, err := s.Send([]byte("x"), 0)
		p.errno("send to one who has gone", err, syscall.ECONNRESET)
		_, err = c.Send([]byte("x"), 0)
		p.errno("send after shutdown", err, syscall.ECONNRESET)
		p.closeSockets(c, s)
		p.errno("close twice", c.Close(), syscall.EBADF)
		_, err = c.Recv(buf, 0)
		p.errno("receive when closed", err, syscall.EBADF)

		// The end of reading is not told.
		c, s = p.sockets(nil, nil)
		p.ok(c.Shutdown(rsocket.ShutRead))
		if n := must(c.Recv(buf, 0))(p); n != 0 {
			t.Error(n)
		}
		time.Sleep(time.Second)
		if e := p.poll(s, inOut, 0); e != rsocket.PollOut {
			t.Errorf("the peer has %#x", e)
		}
		must(s.Send(make([]byte, 500000), rsocket.MsgDontWait))(p) // goes nowhere, and harms nobody
		must(c.Send([]byte("still"), 0))(p)
		must(s.Recv(buf, 0))(p)
		p.ok(c.Shutdown(rsocket.ShutWrite)) // now it is over
		time.Sleep(time.Second)
		if e := p.poll(s, inOut, 0); e != rsocket.PollIn|rsocket.PollHup {
			t.Errorf("the peer has %#x", e)
		}
		p.closeSockets(c, s)
	})
}

// Shutdown before there is a connection says ENOTCONN, and changes nothing.
func TestR_SHUT_01_BeforeTheConnection(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		l, at := p.server()
		c := p.socket(p.a, rsocket.SockStream|rsocket.SockNonblock)
		p.errno("no connection", c.Shutdown(rsocket.ShutWrite), syscall.ENOTCONN)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		p.errno("not yet", c.Shutdown(rsocket.ShutWrite), syscall.ENOTCONN)
		p.errno("not yet", c.Shutdown(rsocket.ShutBoth), syscall.ENOTCONN)
		s, _, err := l.Accept()
		p.ok(err)
		c.SetNonblock(false)
		must(c.Send([]byte("hello"), 0))(p)
		buf := make([]byte, 10)
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "hello" {
			t.Errorf("%q", buf[:n])
		}
		p.closeSockets(c, s, l)
	})
}

// Close may wait for a peer that does not answer; calls of others on the socket do not.
func TestR_SHUT_06_CloseKeepsNobodyWaiting(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		again := p.deaf()
		must(c.Send([]byte("last words"), 0))(p)
		var w sync.WaitGroup
		start := time.Now()
		w.Go(func() {
			p.ok(c.Close())
			if time.Since(start) < 100*time.Millisecond {
				t.Error("it did not wait for the acknowledgement")
			}
		})
		time.Sleep(100 * time.Millisecond)
		_, err := c.Recv(make([]byte, 1), 0)
		p.errno("receive", err, syscall.EBADF)
		_, err = c.OptionInt(rsocket.SolSocket, rsocket.SoError)
		p.errno("option", err, syscall.EBADF)
		if e := p.poll(c, rsocket.PollIn, -1); e != rsocket.PollNval {
			t.Errorf("it has %#x", e)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("others waited %v", took)
		}
		again()
		buf := make([]byte, 20)
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "last words" {
			t.Errorf("%q", buf[:n])
		}
		w.Wait()
		p.ok(s.Close())
	})
}

// What one call sends stays together, also if it is in several buffers.
func TestR_IO_14_R_IO_10_VectorsDoNotMix(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		small := func(s *rsocket.Socket) { p.ok(s.SetOptionInt(rsocket.SolSocket, rsocket.SoRcvBuf, 500)) }
		c, s := p.sockets(small, small)
		const writers, rounds, parts, size = 4, 30, 5, 300
		var w sync.WaitGroup
		for i := range writers {
			w.Go(func() {
				iov := make([][]byte, parts)
				for j := range iov {
					iov[j] = bytes.Repeat([]byte{byte(i)}, size)
				}
				for range rounds {
					if n, err := c.Writev(iov); n != parts*size || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
			})
		}
		buf, mixed := make([]byte, parts*size), 0
		for range writers * rounds {
			must(s.Recv(buf, rsocket.MsgWaitAll))(p)
			if !bytes.Equal(buf, bytes.Repeat(buf[:1], len(buf))) {
				mixed++
			}
		}
		if mixed > 0 {
			t.Errorf("%d messages are mixed", mixed)
		}
		w.Wait()
		p.closeSockets(c, s)
	})
}
