package socket_test

import (
	"bytes"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

func TestR_SOCK_01_02_03_Kinds(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		for _, c := range []struct {
			domain socket.Domain
			typ    socket.Type
			proto  int
			ok     bool
		}{
			{socket.Inet, socket.SockStream, 0, true}, {socket.Inet6, socket.SockStream, socket.ProtoTCP, true},
			{socket.Inet, socket.SockDgram, 0, true}, {socket.Inet6, socket.SockDgram, socket.ProtoUDP, true},
			{socket.Inet, socket.SockStream | socket.SockNonblock | socket.SockCloexec, 0, true},
			{1, socket.SockStream, 0, false}, {socket.Inet, 3, 0, false}, {socket.Inet, socket.SockStream, socket.ProtoUDP,
				false},
			{socket.Inet, socket.SockDgram, socket.ProtoTCP, false}, {27, socket.SockStream, 0, false},
		} {
			s, err := socket.NewOn(p.A.Host, c.domain, c.typ, c.proto)
			if c.ok {
				p.OK(err)
				p.OK(s.Close())
			} else {
				p.errno("kind", err, syscall.ENOTSUP)
			}
		}
	})
}

func TestR_SOCK_05_06_07_08_BindListenAccept(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s := p.socket(p.B, socket.SockStream)
		_, _, err := s.Accept()
		p.errno("accept without listen", err, syscall.EBADF)
		p.errno("another family", s.Bind(netip.MustParseAddrPort("[::1]:1")), syscall.EINVAL)
		p.errno("no address of a device", s.Bind(netip.MustParseAddrPort("198.18.0.99:1")), syscall.ENODEV)
		p.OK(s.Bind(netip.AddrPortFrom(p.B.Addr, 7000)))
		other := p.socket(p.B, socket.SockStream)
		p.errno("a port in use", other.Bind(netip.AddrPortFrom(p.B.Addr, 7000)), syscall.EADDRINUSE)
		p.OK(s.Listen(1))
		p.OK(s.Listen(1)) // changes nothing
		p.errno("a listener connects", s.Connect(netip.AddrPortFrom(p.B.Addr, 7001)), syscall.EINVAL)
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
		if e := p.poll(l, socket.PollIn, 0); e != 0 {
			t.Errorf("a listener has %#x", e)
		}
		c := p.socket(p.A, socket.SockStream|socket.SockNonblock)
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
		p.errno("R-OPT-03", c.SetOptionInt(socket.SolRDMA, socket.RDMASQSize, 100), syscall.EINVAL)
		if e := p.poll(c, inOut, -1); e != socket.PollOut {
			t.Errorf("a connected socket has %#x", e)
		}
		if v := must(c.OptionInt(socket.SolSocket, socket.SoError))(p); v != 0 {
			t.Errorf("SO_ERROR %d", v)
		}
		if e := p.poll(l, socket.PollIn, -1); e != socket.PollIn {
			t.Errorf("a listener has %#x", e)
		}
		s, _, err := l.Accept()
		p.OK(err)
		_, err = s.Recv(make([]byte, 1), 0)
		p.errno("the accepted socket does not block", err, syscall.EAGAIN)

		failing := p.socket(p.A, socket.SockStream|socket.SockNonblock)
		p.errno("connect", failing.Connect(netip.AddrPortFrom(p.B.Addr, 1)), syscall.EINPROGRESS)
		if e := p.poll(failing, inOut, -1); e != inOut|socket.PollErr {
			t.Errorf("a refused socket has %#x", e)
		}
		if v := must(failing.OptionInt(socket.SolSocket, socket.SoError))(p); syscall.Errno(v) != syscall.ECONNREFUSED {
			t.Errorf("SO_ERROR %d", v)
		}
		if v := must(failing.OptionInt(socket.SolSocket, socket.SoError))(p); v != 0 {
			t.Errorf("SO_ERROR is %d once more", v)
		}
		p.closeSockets(c, s, failing, l)
	})
}

func TestNoPeerBeforeTheConnectionIsMade(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, at := p.server()
		p.OK(l.Close())
		c := p.socket(p.A, socket.SockStream)
		c.SetNonblock(true)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		_, err := c.PeerName()
		p.errno("while it connects", err, syscall.ENOTCONN)
		p.poll(c, socket.PollOut, -1)
		_, err = c.PeerName()
		p.errno("refused", err, syscall.ENOTCONN)
		p.closeSockets(c)
	})
}

func TestConnectAgainAfterARefusal(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, at := p.server()
		p.OK(l.Close())
		c := p.socket(p.A, socket.SockStream)
		again := func() error { return c.SetOptionInt(socket.SolRDMA, socket.RDMAAgain, 1) }
		p.errno("before", again(), syscall.EINVAL)
		p.OK(c.SetOptionInt(socket.SolRDMA, socket.RDMASQSize, 100))
		p.OK(c.Bind(netip.AddrPortFrom(p.A.Addr, 0)))
		name := must(c.SockName())(p)
		for range 2 {
			p.errno("connect", c.Connect(at), syscall.ECONNREFUSED)
			p.OK(again())
		}
		l, at = p.server()
		p.OK(c.Connect(at))
		s, from, err := l.Accept()
		p.OK(err)
		if size := must(c.OptionInt(socket.SolRDMA, socket.RDMASQSize))(p); from != name || size != 100 {
			t.Errorf("from %v with a queue of %d, want %v and 100", from, size, name)
		}
		must(c.Send([]byte("x"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		p.errno("after", again(), syscall.EINVAL)
		p.closeSockets(c, s, l)
	})
}

func TestR_SOCK_13_BlockingIOFinishesConnecting(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		l, at := p.server()
		c := p.socket(p.A, socket.SockStream|socket.SockNonblock)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		c.SetNonblock(false)
		if n := must(c.Send([]byte("hello"), 0))(p); n != 5 {
			t.Error(n)
		}
		s, _, err := l.Accept()
		p.OK(err)
		p.closeSockets(c, s, l)
	})
}

func TestR_SOCK_18_ConnectTwice(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		p.OK(c.Connect(must(c.PeerName())(p)))
		p.OK(s.Close())
		synctest.Wait()
		_, _ = c.Recv(make([]byte, 1), 0)
		p.errno("after the end", c.Connect(netip.AddrPortFrom(p.B.Addr, 1)), syscall.ENOTCONN)
		failed := p.socket(p.A, socket.SockStream)
		p.errno("refused", failed.Connect(netip.AddrPortFrom(p.B.Addr, 1)), syscall.ECONNREFUSED)
		p.errno("after a refusal", failed.Connect(netip.AddrPortFrom(p.B.Addr, 1)), syscall.ENOTCONN)
		_, err := failed.Send([]byte("x"), 0)
		p.errno("send after a refusal", err, syscall.ECONNREFUSED)
		p.closeSockets(c, failed)
	})
}

func TestR_IO_01_02_05_06_07_08_19_Flags(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		buf := make([]byte, 300000)
		_, err := s.Recv(buf, socket.MsgDontWait)
		p.errno("nothing there", err, syscall.EAGAIN)
		if n := must(c.Send(nil, 0))(p); n != 0 {
			t.Errorf("an empty Send returned %d", n)
		}
		must(c.Send([]byte("hello"), 0))(p)
		for range 2 {
			if n := must(s.Recv(buf[:3], socket.MsgPeek))(p); string(buf[:n]) != "hel" {
				t.Errorf("peeked %q", buf[:n])
			}
		}
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "hello" {
			t.Errorf("received %q", buf[:n])
		}
		// Everything, although it arrives in pieces.
		var w sync.WaitGroup
		w.Go(func() {
			for range 5 {
				time.Sleep(time.Second)
				must(c.Send([]byte("12345"), 0))(p)
			}
		})
		if n := must(s.Recv(buf[:25], socket.MsgWaitAll))(p); n != 25 {
			t.Errorf("%d bytes of 25", n)
		}
		w.Wait()
		// As much as fits.
		n := must(c.Send(buf, socket.MsgDontWait))(p)
		if n == 0 || n >= len(buf) {
			t.Errorf("%d bytes of %d", n, len(buf))
		}
		_, err = c.Send(buf, socket.MsgDontWait)
		for err == nil {
			_, err = c.Send(buf, socket.MsgDontWait)
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
		if n := must(s.Readv([][]byte{nil, buf[:2], buf[50:]}))(p); string(buf[:n]) != "tw" { // a short read
			t.Errorf("%q", buf[:n])
		}
		must(s.Read(buf))(p)
		must(c.SendMsg(&socket.Msg{IOV: [][]byte{[]byte("three")}}, 0))(p)
		m := socket.Msg{IOV: [][]byte{buf}}
		if n := must(s.RecvMsg(&m, 0))(p); string(buf[:n]) != "three" || m.Name != must(c.SockName())(p) {
			t.Errorf("%q from %v", buf[:n], m.Name)
		}
		_, err := c.SendMsg(&socket.Msg{Control: []byte{1}}, 0)
		p.errno("ancillary data", err, syscall.ENOTSUP)
		_, err = c.RecvMsg(&socket.Msg{Control: []byte{1}}, 0)
		p.errno("ancillary data", err, syscall.ENOTSUP)
		_, err = c.SendTo([]byte("x"), 0, must(c.PeerName())(p))
		p.errno("sendto", err, syscall.EISCONN)
		must(c.SendTo([]byte("four"), 0, netip.AddrPort{}))(p)
		n, from, err := s.RecvFrom(buf, 0)
		p.OK(err)
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
		p.OK(c.Shutdown(socket.ShutBoth))
		if time.Since(start) < 2*time.Millisecond {
			t.Error("Shutdown did not wait for the acknowledgement")
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
		_, err = c.IOMap(buf, socket.ProtWrite, -1)
		p.errno("map when closed", err, syscall.EBADF)
		p.errno("unmap when closed", c.IOUnmap(buf), syscall.EBADF)
		_, err = c.IOWrite(buf, 0, 0)
		p.errno("write to a map when closed", err, syscall.EBADF)
		p.errno("shutdown when closed", c.Shutdown(socket.ShutBoth), syscall.EBADF)

		d := p.socket(p.A, socket.SockDgram)
		p.OK(d.Shutdown(socket.ShutBoth))
		p.OK(d.Close())
		p.errno("shutdown of a closed datagram socket", d.Shutdown(socket.ShutBoth), syscall.EBADF)
		_, err = d.Send(buf, 0)
		p.errno("send on a closed datagram socket", err, syscall.EBADF)

		// The peer is not notified of the end of reading.
		c, s = p.sockets(nil, nil)
		p.OK(c.Shutdown(socket.ShutRead))
		if n := must(c.Recv(buf, 0))(p); n != 0 {
			t.Error(n)
		}
		time.Sleep(time.Second)
		if e := p.poll(s, inOut, 0); e != socket.PollOut {
			t.Errorf("the peer has %#x", e)
		}
		must(s.Send(make([]byte, 500000), socket.MsgDontWait))(p) // goes nowhere, and harms nobody
		must(c.Send([]byte("still"), 0))(p)
		must(s.Recv(buf, 0))(p)
		p.OK(c.Shutdown(socket.ShutWrite)) // now it is over
		time.Sleep(time.Second)
		if e := p.poll(s, inOut, 0); e != socket.PollIn|socket.PollHup {
			t.Errorf("the peer has %#x", e)
		}
		p.closeSockets(c, s)
	})
}

// Shutdown without a connection fails with ENOTCONN and changes nothing.
func TestR_SHUT_01_BeforeTheConnection(t *testing.T) {
	inBubble(t, rdmatest.Faults{Delay: time.Millisecond}, func(p *places) {
		l, at := p.server()
		c := p.socket(p.A, socket.SockStream|socket.SockNonblock)
		p.errno("no connection", c.Shutdown(socket.ShutWrite), syscall.ENOTCONN)
		p.errno("connect", c.Connect(at), syscall.EINPROGRESS)
		p.errno("not yet", c.Shutdown(socket.ShutWrite), syscall.ENOTCONN)
		p.errno("not yet", c.Shutdown(socket.ShutBoth), syscall.ENOTCONN)
		s, _, err := l.Accept()
		p.OK(err)
		c.SetNonblock(false)
		must(c.Send([]byte("hello"), 0))(p)
		buf := make([]byte, 10)
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "hello" {
			t.Errorf("%q", buf[:n])
		}
		p.closeSockets(c, s, l)
	})
}

// Close may wait for a peer that does not answer. Other calls on the socket do not wait for Close.
func TestR_SHUT_06_CloseDelaysNoOtherCall(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		again := p.LoseRequests()
		must(c.Send([]byte("last words"), 0))(p)
		var w sync.WaitGroup
		start := time.Now()
		w.Go(func() {
			p.OK(c.Close())
			if time.Since(start) < 100*time.Millisecond {
				t.Error("Close did not wait for the acknowledgement")
			}
		})
		time.Sleep(100 * time.Millisecond)
		_, err := c.Recv(make([]byte, 1), 0)
		p.errno("receive", err, syscall.EBADF)
		_, err = c.OptionInt(socket.SolSocket, socket.SoError)
		p.errno("option", err, syscall.EBADF)
		if e := p.poll(c, socket.PollIn, -1); e != socket.PollNval {
			t.Errorf("it has %#x", e)
		}
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("other calls waited %v", took)
		}
		again()
		buf := make([]byte, 20)
		if n := must(s.Recv(buf, 0))(p); string(buf[:n]) != "last words" {
			t.Errorf("%q", buf[:n])
		}
		w.Wait()
		p.OK(s.Close())
	})
}

// A receiver that is told of data finds all of a short vector, as with TCP. Longer ones keep their order.
func TestR_IO_10_AVectorArrivesAsOneBuffer(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		for _, sizes := range [][]int{{2, 2}, {0, 1, 0, 63}, {60, 5, 0}, {1000, 1, 2000}, {3, 100_000, 0, 7, 200_000}} {
			var iov [][]byte
			var all []byte
			for i, n := range sizes {
				b := make([]byte, n)
				for j := range b {
					b[j] = byte(i + j)
				}
				iov, all = append(iov, b), append(all, b...)
			}
			buf := make([]byte, len(all)+1)
			var w sync.WaitGroup
			w.Go(func() {
				if n, err := c.Writev(iov); n != len(all) || err != nil {
					t.Errorf("%v: %d, %v", sizes, n, err)
				}
			})
			n := must(s.Recv(buf, 0))(p)
			if len(all) < 4096 && n != len(all) {
				t.Errorf("%v: %d bytes came first", sizes, n)
			}
			for n < len(all) {
				n += must(s.Recv(buf[n:], 0))(p)
			}
			if !bytes.Equal(buf[:n], all) {
				t.Errorf("%v: other bytes came", sizes)
			}
			w.Wait()
		}
		p.closeSockets(c, s)
	})
}

// What one call sends stays together, also if it is in several buffers.
func TestR_IO_14_R_IO_10_VectorsDoNotMix(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		small := func(s *socket.Socket) { p.OK(s.SetOptionInt(socket.SolSocket, socket.SoRcvBuf, 500)) }
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
			must(s.Recv(buf, socket.MsgWaitAll))(p)
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

func TestShutdownEndsAccept(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		l, at := p.server()
		var w sync.WaitGroup
		w.Go(func() {
			_, _, err := l.Accept()
			p.errno("accept", err, syscall.EBADF)
		})
		synctest.Wait()
		p.OK(l.Shutdown(socket.ShutBoth))
		w.Wait()
		_, _, err := l.Accept()
		p.errno("afterwards", err, syscall.EBADF)
		c := p.socket(p.A, socket.SockStream)
		p.errno("connect", c.Connect(at), syscall.ECONNREFUSED)
		p.closeSockets(l, c)
	})
}

func TestR_SHUT_01_BadShutdown(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s := p.socket(p.A, socket.SockStream)
		p.errno("how -1", s.Shutdown(-1), syscall.EINVAL)
		p.errno("how 3", s.Shutdown(3), syscall.EINVAL)
		p.errno("no connection", s.Shutdown(socket.ShutBoth), syscall.ENOTCONN)
		p.closeSockets(s)
	})
}

// An IPv6 stream takes IPv4 addresses, mapped or not, as one of TCP does; not with IPV6_V6ONLY. Java's sockets are
// such.
func TestIPv6StreamsHaveIPv4Addresses(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		six := func(at socktest.Place) *socket.Socket {
			return must(socket.NewOn(at.Host, socket.Inet6, socket.SockStream, 0))(p)
		}
		mapped := func(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }
		l, c, only := six(p.B), six(p.A), six(p.A)
		p.OK(l.Bind(netip.AddrPortFrom(mapped(p.B.Addr), 0)))
		p.OK(l.Listen(0))
		at := netip.AddrPortFrom(mapped(p.B.Addr), must(l.SockName())(p).Port())
		p.OK(c.Connect(at))
		s, _, err := l.Accept()
		p.OK(err)
		p.OK(only.SetOptionInt(socket.IPProtoIPv6, socket.IPv6V6Only, 1))
		p.errno("IPV6_V6ONLY", only.Connect(at), syscall.EINVAL)
		p.errno("IPV6_V6ONLY", only.Bind(netip.AddrPortFrom(mapped(p.A.Addr), 0)), syscall.EINVAL)
		four, any6 := p.socket(p.A, socket.SockStream), netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
		p.errno("an IPv6 address of an IPv4 socket", four.Bind(any6), syscall.EINVAL)
		bound := six(p.A) // to all addresses: the port stays, and the address is that toward the peer
		p.OK(bound.Bind(any6))
		port := must(bound.SockName())(p).Port()
		p.OK(bound.Connect(at))
		s2, _, err := l.Accept()
		p.OK(err)
		if got := must(bound.SockName())(p); got != netip.AddrPortFrom(p.A.Addr, port) {
			t.Errorf("the local address is %v: must be %v with port %d", got, p.A.Addr, port)
		}
		p.closeSockets(l, c, s, only, four, bound, s2)
	})
}
