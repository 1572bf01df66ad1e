package rsocket_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
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

// poll polls one socket.
func (p *places) poll(s *rsocket.Socket, e rsocket.Events, timeout time.Duration) rsocket.Events {
	p.Helper()
	fds := []rsocket.PollFD{{Socket: s, Events: e}}
	n, err := rsocket.Poll(fds, timeout)
	p.ok(err)
	if (n == 1) != (fds[0].Revents != 0) {
		p.Errorf("%d sockets with events, but %#x", n, fds[0].Revents)
	}
	return fds[0].Revents
}

const inOut = rsocket.PollIn | rsocket.PollOut

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

func TestR_POLL_02_06_Events(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		if e := p.poll(c, inOut, 0); e != rsocket.PollOut {
			t.Errorf("an idle connection has %#x", e)
		}
		if e := p.poll(c, rsocket.PollIn, 0); e != 0 {
			t.Errorf("without being asked it has %#x", e)
		}
		start := time.Now()
		if e := p.poll(c, rsocket.PollIn, 3*time.Second); e != 0 || time.Since(start) != 3*time.Second {
			t.Errorf("%#x after %v", e, time.Since(start))
		}
		var w sync.WaitGroup
		w.Go(func() {
			time.Sleep(time.Hour)
			must(s.Send([]byte("x"), 0))(p)
		})
		if e := p.poll(c, rsocket.PollIn, -1); e != rsocket.PollIn || time.Since(start) < time.Hour {
			t.Errorf("%#x after %v", e, time.Since(start))
		}
		w.Wait()
		var err error
		for err == nil {
			_, err = c.Send(make([]byte, 100000), rsocket.MsgDontWait)
		}
		if e := p.poll(c, inOut, 0); e != rsocket.PollIn {
			t.Errorf("a full connection has %#x", e)
		}
		p.ok(s.Close())
		synctest.Wait()
		if e := p.poll(c, inOut, -1); e != rsocket.PollIn|rsocket.PollHup {
			t.Errorf("a connection that is over has %#x", e)
		}
		p.ok(c.Close())
		if e := p.poll(c, inOut, -1); e != rsocket.PollNval {
			t.Errorf("a closed socket has %#x", e)
		}
	})
}

// Sockets and pipes in one set; each wakes the others up.
func TestR_POLL_01_05_10_SocketsAndDescriptors(t *testing.T) {
	p := overUDP(t)
	defer p.close()
	c, s := p.sockets(nil, nil)
	r, w, err := os.Pipe()
	p.ok(err)
	defer r.Close()
	defer w.Close()
	d := must(rsocket.NewSocketOn(p.b.host, rsocket.Inet, rsocket.SockDgram, 0))(p)
	p.ok(d.Bind(netip.AddrPortFrom(p.b.addr, 0)))
	fds := []rsocket.PollFD{
		{Socket: s, Events: rsocket.PollIn}, {FD: int(r.Fd()), Events: rsocket.PollIn}, {Socket: d, Events: rsocket.PollIn}, {FD: int(w.Fd()), Events: 0},
	}
	from := must(rsocket.NewSocketOn(p.a.host, rsocket.Inet, rsocket.SockDgram, 0))(p)
	p.ok(from.Bind(netip.AddrPortFrom(p.a.addr, 0)))
	for i, f := range []func(){
		func() { must(c.Send([]byte("x"), 0))(p) },
		func() { must(w.Write([]byte("x")))(p) },
		func() { must(from.SendTo([]byte("x"), 0, must(d.SockName())(p)))(p) },
	} {
		if n := must(rsocket.Poll(fds, 0))(p); n != 0 {
			t.Fatalf("%d before: %+v", n, fds)
		}
		go func() {
			time.Sleep(20 * time.Millisecond)
			f()
		}()
		if n := must(rsocket.Poll(fds, 20*time.Second))(p); n != 1 || fds[i].Revents != rsocket.PollIn {
			t.Fatalf("%d: %d %+v", i, n, fds)
		}
		buf := make([]byte, 1)
		switch i {
		case 0:
			must(s.Recv(buf, 0))(p)
		case 1:
			must(r.Read(buf))(p)
		}
	}
	if e := p.poll(d, inOut, 0); e != inOut {
		t.Errorf("the datagram socket has %#x", e)
	}
	p.ok(c.Close())
	sets := rsocket.SelectSets{
		Read:   []rsocket.Handle{{Socket: s}, {FD: int(r.Fd())}, {Socket: d}},
		Write:  []rsocket.Handle{{Socket: s}, {FD: int(w.Fd())}},
		Except: []rsocket.Handle{{Socket: s}, {Socket: d}},
	}
	for range 1000 { // until the peer's end is here
		all := sets
		n := must(rsocket.Select(&all, time.Second))(p)
		if len(all.Except) == 0 {
			continue
		}
		if n != 4 || len(all.Read) != 2 || all.Read[0].Socket != s || all.Read[1].Socket != d || len(all.Write) != 1 || all.Write[0].Socket != nil ||
			all.Except[0].Socket != s {
			t.Errorf("%d: %+v", n, all)
		}
		break
	}
	p.closeSockets(s, d, from)
}

// A change that one goroutine notices wakes all that poll; a poll that misses its wake-up looks again by itself.
func TestR_POLL_07_08_09_ManyPollers(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		var w sync.WaitGroup
		for range 5 {
			w.Go(func() {
				if e := p.poll(s, rsocket.PollIn, -1); e != rsocket.PollIn {
					t.Errorf("%#x", e)
				}
			})
		}
		synctest.Wait()
		start := time.Now()
		must(c.Send([]byte("x"), 0))(p)
		w.Wait()
		if took := time.Since(start); took > 500*time.Millisecond { // the interval
			t.Errorf("it took %v", took)
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

func TestR_MAP_01_02_03_06_07_08_12_Mapping(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 10000)
		fresh := p.socket(p.a, rsocket.SockStream)
		_, err := fresh.IOMap(mem, rsocket.ProtWrite, 0)
		p.errno("no connection", err, syscall.EINVAL)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 2)) }, nil)
		_, err = c.IOMap(mem, rsocket.ProtWrite, 0)
		p.errno("the peer has no room", err, syscall.ENOMEM)
		_, err = s.IOMap(mem, 1, 0)
		p.errno("protection", err, syscall.EINVAL)
		if off := must(s.IOMap(mem[:1000], rsocket.ProtWrite, 5000))(p); off != 5000 {
			t.Error(off)
		}
		chosen := must(s.IOMap(mem[2000:3000], rsocket.ProtWrite, -1))(p)
		must(s.IOMap(mem[4000:5000], rsocket.ProtNone, 0))(p) // needs no room at the peer
		_, err = s.IOMap(mem[3000:4000], rsocket.ProtWrite, 9000)
		p.errno("a third one", err, syscall.ENOMEM)
		// The peer knows of them when something comes that was sent afterwards.
		if n := must(c.IOWrite([]byte("early"), 5000, 0))(p); n != 0 {
			t.Errorf("%d bytes to an unknown map", n)
		}
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		if n := must(c.IOWrite([]byte("first"), 5010, 0))(p); n != 5 {
			t.Error(n)
		}
		if n := must(c.IOWrite([]byte("second"), chosen, 0))(p); n != 6 {
			t.Error(n)
		}
		if n := must(c.IOWrite(make([]byte, 20), 5990, 0))(p); n != 10 { // the map ends
			t.Error(n)
		}
		must(c.Send([]byte("!"), 0))(p)
		must(s.Recv(make([]byte, 1), 0))(p)
		if string(mem[10:15]) != "first" || string(mem[2000:2006]) != "second" {
			t.Errorf("%q %q", mem[10:15], mem[2000:2006])
		}
		p.errno("another length", s.IOUnmap(mem[:999]), syscall.EINVAL)
		p.errno("another place", s.IOUnmap(mem[1:1001]), syscall.EINVAL)
		p.ok(s.IOUnmap(mem[:1000]))
		p.errno("once more", s.IOUnmap(mem[:1000]), syscall.EINVAL)
		if off := must(s.IOMap(mem[3000:4000], rsocket.ProtWrite, 9000))(p); off != 9000 { // there is room again
			t.Error(off)
		}
		p.closeSockets(fresh, c, s)
	})
}

// What IOWrite writes is there before what Send sends afterwards, and comes without notice.
func TestR_MAP_04_05_09_10_11_13_14_Order(t *testing.T) {
	inBubble(t, rdmatest.Faults{Loss: 0.02, Reorder: 0.05}, func(p *places) {
		mem := make([]byte, 300000)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, rsocket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		one := make([]byte, 1)
		for i := range 20 {
			data := text(1+i*14000, uint64(i))
			if n := must(c.IOWrite(data, 7, 0))(p); n != len(data) {
				t.Error(n)
			}
			must(c.Send([]byte{byte(i)}, 0))(p)
			must(s.Recv(one, 0))(p)
			if one[0] != byte(i) || !bytes.Equal(mem[7:7+len(data)], data) {
				t.Fatalf("round %d: the data is not there", i)
			}
		}
		if e := p.poll(s, rsocket.PollIn, 0); e != 0 {
			t.Errorf("the receiver was told: %#x", e)
		}
		c.SetNonblock(true)
		if n := must(c.IOWrite(mem[:250000], 0, 0))(p); n == 0 || n == 250000 {
			t.Errorf("%d bytes without waiting", n)
		}
		c.SetNonblock(false)
		p.closeSockets(c, s)
	})
}

// A write to memory that was unmapped ends the connection, and harms nobody else.
func TestW_RS_26_WriteToUnmapped(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		mem := make([]byte, 1000)
		c, s := p.sockets(func(c *rsocket.Socket) { p.ok(c.SetOptionInt(rsocket.SolRDMA, rsocket.RDMAIOMapSize, 1)) }, nil)
		must(s.IOMap(mem, rsocket.ProtWrite, 0))(p)
		must(s.Send([]byte("go"), 0))(p)
		must(c.Recv(make([]byte, 2), 0))(p)
		p.ok(s.IOUnmap(mem))
		must(c.IOWrite([]byte("x"), 0, 0))(p)
		n, err := c.Recv(make([]byte, 1), 0)
		if p.errno("the writer", err, syscall.ECONNRESET); n != 0 || mem[0] != 0 {
			t.Error(n, mem[0])
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
