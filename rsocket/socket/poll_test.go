package socket_test

import (
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// poll polls one socket.
func (p *places) poll(s *socket.Socket, e socket.Events, timeout time.Duration) socket.Events {
	p.Helper()
	fds := []socket.PollFD{{Socket: s, Events: e}}
	n, err := socket.Poll(fds, timeout)
	p.OK(err)
	if (n == 1) != (fds[0].Revents != 0) {
		p.Errorf("%d sockets with events, but %#x", n, fds[0].Revents)
	}
	return fds[0].Revents
}

const inOut = socket.PollIn | socket.PollOut

func TestR_POLL_02_06_Events(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		if e := p.poll(c, inOut, 0); e != socket.PollOut {
			t.Errorf("an idle connection has %#x", e)
		}
		if e := p.poll(c, socket.PollIn, 0); e != 0 {
			t.Errorf("without a request it has %#x", e)
		}
		start := time.Now()
		if e := p.poll(c, socket.PollIn, 3*time.Second); e != 0 || time.Since(start) != 3*time.Second {
			t.Errorf("%#x after %v", e, time.Since(start))
		}
		var w sync.WaitGroup
		w.Go(func() {
			time.Sleep(time.Hour)
			must(s.Send([]byte("x"), 0))(p)
		})
		if e := p.poll(c, socket.PollIn, -1); e != socket.PollIn || time.Since(start) < time.Hour {
			t.Errorf("%#x after %v", e, time.Since(start))
		}
		w.Wait()
		var err error
		for err == nil {
			_, err = c.Send(make([]byte, 100000), socket.MsgDontWait)
		}
		if e := p.poll(c, inOut, 0); e != socket.PollIn {
			t.Errorf("a full connection has %#x", e)
		}
		p.OK(s.Close())
		synctest.Wait()
		if e := p.poll(c, inOut, -1); e != inOut {
			t.Errorf("a connection that is over has %#x while there is data to read", e)
		}
		if e := p.poll(c, socket.PollOut, time.Minute); e != socket.PollOut {
			t.Errorf("a connection that is over has %#x for a program that writes before it reads", e)
		}
		must(c.Recv(make([]byte, 10), 0))(p)
		if e := p.poll(c, inOut, -1); e != socket.PollIn|socket.PollHup {
			t.Errorf("a connection that is over has %#x", e)
		}
		p.OK(c.Close())
		if e := p.poll(c, inOut, -1); e != socket.PollNval {
			t.Errorf("a closed socket has %#x", e)
		}
	})
}

// After the end of writing a write fails without waiting. So POLLOUT is set with and without room, as in C and for TCP.
func TestR_POLL_02_WriteShut(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		for _, full := range []bool{false, true} {
			c, s := p.sockets(nil, nil)
			var err error
			for full && err == nil {
				_, err = c.Send(make([]byte, 100000), socket.MsgDontWait)
			}
			p.OK(c.Shutdown(socket.ShutWrite))
			if e := p.poll(c, inOut, time.Minute); e != socket.PollOut {
				t.Errorf("full %v: %#x", full, e)
			}
			_, err = c.Send([]byte("x"), socket.MsgDontWait)
			p.errno("send", err, syscall.ECONNRESET)
			p.closeSockets(c, s)
		}
	})
}

// PollRdHup comes at once, although there is data to read. It must be requested.
func TestPollTellsThatThePeerSendsNoMore(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		if e := p.poll(c, inOut|socket.PollRdHup, -1); e != socket.PollOut {
			t.Errorf("a new connection has %#x", e)
		}
		must(s.Send([]byte("last"), 0))(p)
		p.OK(s.Shutdown(socket.ShutWrite))
		if e := p.poll(c, socket.PollRdHup, -1); e != socket.PollRdHup {
			t.Errorf("after the peer's end it has %#x", e)
		}
		if e := p.poll(c, inOut|socket.PollRdHup, -1); e != inOut|socket.PollRdHup {
			t.Errorf("with data it has %#x", e)
		}
		if e := p.poll(c, socket.PollIn, -1); e != socket.PollIn {
			t.Errorf("without a request it has %#x", e)
		}
		p.closeSockets(c, s)
	})
}

// When a connection fails, POLLERR and POLLHUP are set even if not requested. Data received before can still be read.
func TestR_POLL_02_BrokenConnection(t *testing.T) {
	cut := false
	script := func(rdmatest.Packet) (rdmatest.Verdict, bool) { return rdmatest.Verdict{Drop: true}, cut }
	inBubble(t, rdmatest.Faults{Script: script}, func(p *places) {
		c, s := p.sockets(nil, nil)
		must(s.Send([]byte("last"), 0))(p)
		synctest.Wait()
		if e := p.poll(c, inOut, -1); e != inOut {
			t.Errorf("with data it has %#x", e)
		}
		synctest.Wait()
		cut = true
		must(c.Send([]byte("lost"), 0))(p)
		if e := p.poll(c, 0, -1); e != socket.PollErr|socket.PollHup {
			t.Errorf("without a request it has %#x", e)
		}
		if e := p.poll(c, inOut, -1); e != socket.PollIn|socket.PollErr|socket.PollHup {
			t.Errorf("a broken connection has %#x", e)
		}
		buf := make([]byte, 10)
		if n, err := c.Recv(buf, 0); string(buf[:n]) != "last" || err != nil {
			t.Errorf("%q, %v", buf[:n], err)
		}
		_, err := c.Recv(buf, 0)
		p.errno("behind it", err, syscall.ETIMEDOUT)
		if e := p.poll(c, inOut, -1); e != socket.PollIn|socket.PollErr|socket.PollHup {
			t.Errorf("with nothing left it has %#x", e)
		}
		_, err = c.Send(buf, 0)
		p.errno("send", err, syscall.ETIMEDOUT)
		cut = false
		p.closeSockets(c, s)
	})
}

// Sockets and pipes in one set: an event at each ends the wait.
func TestR_POLL_01_05_10_SocketsAndDescriptors(t *testing.T) {
	p := overUDP(t)
	defer p.Close()
	c, s := p.sockets(nil, nil)
	r, w, err := os.Pipe()
	p.OK(err)
	defer r.Close()
	defer w.Close()
	d := must(socket.NewOn(p.B.Host, socket.Inet, socket.SockDgram, 0))(p)
	p.OK(d.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
	fds := []socket.PollFD{
		{Socket: s, Events: socket.PollIn}, {FD: int(r.Fd()), Events: socket.PollIn}, {Socket: d, Events: socket.PollIn},
		{FD: int(w.Fd()), Events: 0},
	}
	from := must(socket.NewOn(p.A.Host, socket.Inet, socket.SockDgram, 0))(p)
	p.OK(from.Bind(netip.AddrPortFrom(p.A.Addr, 0)))
	for i, f := range []func(){
		func() { must(c.Send([]byte("x"), 0))(p) },
		func() { must(w.Write([]byte("x")))(p) },
		func() { must(from.SendTo([]byte("x"), 0, must(d.SockName())(p)))(p) },
	} {
		if n := must(socket.Poll(fds, 0))(p); n != 0 {
			t.Fatalf("%d before: %+v", n, fds)
		}
		go func() {
			time.Sleep(20 * time.Millisecond)
			f()
		}()
		if n := must(socket.Poll(fds, 20*time.Second))(p); n != 1 || fds[i].Revents != socket.PollIn {
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
	p.OK(c.Close())
	sets := socket.SelectSets{
		Read:   []socket.Handle{{Socket: s}, {FD: int(r.Fd())}, {Socket: d}},
		Write:  []socket.Handle{{Socket: s}, {FD: int(w.Fd())}},
		Except: []socket.Handle{{Socket: s}, {Socket: d}},
	}
	for range 1000 { // until the peer's end is here
		all := sets
		n := must(socket.Select(&all, time.Second))(p)
		if len(all.Except) == 0 {
			continue
		}
		if n != 4 || len(all.Read) != 2 || all.Read[0].Socket != s || all.Read[1].Socket != d || len(all.Write) != 1 ||
			all.Write[0].Socket != nil ||
			all.Except[0].Socket != s {
			t.Errorf("%d: %+v", n, all)
		}
		break
	}
	p.closeSockets(s, d, from)
}

// An event of a socket may come while no poll is under way, because the last one has found an ordinary descriptor. The
// next poll is woken all the same.
func TestR_POLL_08_10_EventsBetweenPolls(t *testing.T) {
	socket.WakeUpEvery(t, time.Hour)
	p := overUDP(t)
	defer p.Close()
	c, s := p.sockets(nil, nil)
	r, w, err := os.Pipe()
	p.OK(err)
	defer r.Close()
	defer w.Close()
	fds := []socket.PollFD{{Socket: s, Events: socket.PollIn}, {FD: int(r.Fd()), Events: socket.PollIn}}
	buf := make([]byte, 10)
	poll := func(want int, f func()) {
		t.Helper()
		time.AfterFunc(5*time.Millisecond, f) // it sleeps by then, in most rounds
		n, err := socket.Poll(fds, 20*time.Second)
		if n != 1 || err != nil || fds[want].Revents != socket.PollIn {
			t.Errorf("%d events, %v: %+v", n, err, fds)
		}
	}
	for i := 0; i < 6 && !t.Failed(); i++ {
		if i == 3 { // then the wake-up takes another way
			fds = append(fds, slices.Repeat([]socket.PollFD{{FD: int(w.Fd())}}, 10)...)
		}
		poll(1, func() { must(w.Write([]byte("x")))(p) })
		must(r.Read(buf))(p)
		must(c.Send([]byte("between"), 0))(p)
		must(s.Recv(buf[:7], socket.MsgWaitAll))(p)
		poll(0, func() { must(c.Send([]byte("y"), 0))(p) })
		must(s.Recv(buf, 0))(p)
	}
	p.closeSockets(c, s)
}

// A pipe without a writer has no data, but a read does not wait: it returns the end.
func TestR_POLL_10_SelectTakesHangUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems also set POLLIN, or have no poll")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	sets := socket.SelectSets{Read: []socket.Handle{{FD: int(r.Fd())}}}
	if n, err := socket.Select(&sets, 20*time.Second); n != 1 || len(sets.Read) != 1 || err != nil {
		t.Errorf("%d, %+v, %v", n, sets, err)
	}
}

// A closed socket is exceptional. In another set it is an error: the result 0 would be that of the timeout.
func TestR_POLL_10_SelectOfAClosedSocket(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		s, open := p.socket(p.A, socket.SockStream), p.socket(p.A, socket.SockDgram)
		p.OK(s.Close())
		h := []socket.Handle{{Socket: s}}
		for name, sets := range map[string]socket.SelectSets{"read": {Read: h}, "write": {Write: h}} {
			n, err := socket.Select(&sets, -1)
			if p.errno(name, err, syscall.EBADF); n != 0 {
				t.Errorf("%s: %d", name, n)
			}
		}
		sets := socket.SelectSets{Read: h, Except: h}
		if n, err := socket.Select(&sets, -1); n != 1 || err != nil || len(sets.Except) != 1 || len(sets.Read) != 0 {
			t.Errorf("%d, %v, %+v", n, err, sets)
		}
		sets = socket.SelectSets{Read: h, Write: []socket.Handle{{Socket: open}}}
		if n, err := socket.Select(&sets, -1); n != 1 || err != nil || len(sets.Write) != 1 {
			t.Errorf("beside one that is ready: %d, %v, %+v", n, err, sets)
		}
		p.closeSockets(open)
	})
}

// POLLOUT is set for a datagram socket while it has a free send slot. A new free slot wakes the waiters.
func TestR_POLL_05_DatagramSendSlots(t *testing.T) {
	socket.WakeUpEvery(t, time.Hour)
	p := overUDP(t)
	defer p.Close()
	a := must(socket.NewOn(p.A.Host, socket.Inet, socket.SockDgram, 0))(p)
	p.OK(a.Bind(netip.AddrPortFrom(p.A.Addr, 0)))
	b := must(socket.NewOn(p.B.Host, socket.Inet, socket.SockDgram, 0))(p)
	p.OK(b.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
	to := must(b.SockName())(p)
	if e := p.poll(a, inOut, 0); e != socket.PollOut {
		t.Errorf("before the first message: %#x", e)
	}
	buf := make([]byte, 10)
	for range 2 { // by UDP, then by the QP
		must(a.SendTo([]byte("x"), 0, to))(p)
		if e := p.poll(b, socket.PollIn, 20*time.Second); e != socket.PollIn {
			t.Fatalf("%#x", e)
		}
		must(b.Recv(buf, 0))(p)
		if e := p.poll(b, inOut, 0); e != socket.PollOut {
			t.Errorf("after all messages were received: %#x", e)
		}
		must(b.SendTo([]byte("y"), 0, must(a.SockName())(p)))(p)
		must(a.Recv(buf, 0))(p)
	}

	release := a.TakeSendSlots()
	if e := p.poll(a, inOut, 0); e != 0 {
		t.Errorf("without a slot: %#x", e)
	}
	_, err := a.SendTo([]byte("x"), socket.MsgDontWait, to)
	p.errno("without a slot", err, syscall.EAGAIN)
	must(b.SendTo([]byte("z"), 0, must(a.SockName())(p)))(p)
	if e := p.poll(a, inOut, 20*time.Second); e != socket.PollIn {
		t.Errorf("with a message and without a slot: %#x", e)
	}
	must(a.Recv(buf, 0))(p)
	time.AfterFunc(20*time.Millisecond, func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	start := time.Now()
	if e := p.poll(a, inOut, 20*time.Second); e != socket.PollOut || time.Since(start) >= 20*time.Second {
		t.Errorf("with slots: %#x after %v", e, time.Since(start))
	}

	release = a.TakeSendSlots()
	time.AfterFunc(20*time.Millisecond, func() {
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	must(a.SendTo([]byte("waited"), 0, to))(p)
	if n, _ := b.Recv(buf, 0); string(buf[:n]) != "waited" {
		t.Errorf("%q", buf[:n])
	}
	p.closeSockets(a, b)
}

// A change that one goroutine detects wakes all polls. A poll that misses its wake-up checks again after an interval.
func TestR_POLL_07_08_09_ManyPollers(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		c, s := p.sockets(nil, nil)
		var w sync.WaitGroup
		for range 5 {
			w.Go(func() {
				if e := p.poll(s, socket.PollIn, -1); e != socket.PollIn {
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

// A new connection wakes a poll of a listening socket, and so does Close.
func TestR_POLL_03_ListenerWakesPollers(t *testing.T) {
	inBubble(t, rdmatest.Faults{}, func(p *places) {
		socket.WakeUpEvery(t, time.Hour)
		l, at := p.server()
		start := time.Now()
		found := make(chan socket.Events)
		go func() { found <- p.poll(l, socket.PollIn, -1) }()
		synctest.Wait()
		c := p.socket(p.A, socket.SockStream)
		p.OK(c.Connect(at))
		if e := <-found; e != socket.PollIn || time.Since(start) > time.Minute {
			t.Errorf("%#x after %v", e, time.Since(start))
		}
		s, _, err := l.Accept()
		p.OK(err)
		go func() { found <- p.poll(l, socket.PollIn, -1) }()
		synctest.Wait()
		p.OK(l.Close())
		if e := <-found; e != socket.PollNval || time.Since(start) > time.Minute {
			t.Errorf("when it is closed: %#x after %v", e, time.Since(start))
		}
		p.closeSockets(c, s)
	})
}
