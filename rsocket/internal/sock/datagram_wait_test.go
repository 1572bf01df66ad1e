package sock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/rs"
)

// The receive buffer has room for messages of the largest size, of which there are at most as many as the receive
// queue has entries, and at least one.
func TestSlotsOfADatagramSocket(t *testing.T) {
	for _, c := range []struct{ recvBuf, rqSize, want int }{
		{4 * rs.DatagramMax, 384, 4}, {5*rs.DatagramMax - 1, 384, 4}, {1 << 30, 384, 384}, {1, 384, 1}, {1 << 30, 1, 1},
		{1 << 30, 2, 2},
	} {
		if got := NewDatagram(nil, true, Options{RecvBuf: c.recvBuf, RQSize: c.rqSize}).slots; got != c.want {
			t.Errorf("buffer of %d bytes, %d receives: %d slots, want %d", c.recvBuf, c.rqSize, got, c.want)
		}
	}
	for v4, head := range map[bool]int{true: rs.HeaderLen4, false: rs.HeaderLen6} {
		if got := NewDatagram(nil, v4, Options{}.WithDefaults()).max(); got != rs.DatagramMax-head {
			t.Errorf("IPv4 %v: messages of %d bytes", v4, got)
		}
	}
}

// A reader wakes the next one while there are messages, and only then. What it has read is not kept in memory.
func TestReaderWakesTheNextOne(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	d.DeliverTwo(ownAddr, "one", "two")
	queue := d.queue
	<-d.read.waiter.C
	for i, want := range []int{1, 0} {
		if _, _, err := d.RecvFrom(nil, 0, WaitMode{Nonblock: true}); err != nil || len(d.read.waiter.C) != want {
			t.Errorf("message %d: %v, %d wake-ups, want %d", i, err, len(d.read.waiter.C), want)
		}
		if queue[i].data != nil {
			t.Errorf("message %d is kept", i)
		}
		if want == 1 {
			<-d.read.waiter.C
		}
	}
	if d.queue != nil {
		t.Error("the empty queue is kept")
	}
	d.Close()
}

// Close wakes the callers of Poll, ends the messages in the queue, and leaves no address handle.
func TestDatagramCloseLeavesNothing(t *testing.T) {
	host := hosted(t)
	d := NewDatagram(JoinHub(host), true, Options{}.WithDefaults())
	ok(t, d.Bind(netip.MustParseAddrPort("127.0.0.1:0")))
	q := must(newDatagramQP(host, ownAddr.Addr(), 1))(t)
	dst := &dest{to: netip.AddrPortFrom(ownAddr.Addr(), 7), q: q}
	dst.learn(7)
	d.dests[dst.to] = dst
	w := NewWaiter()
	d.Watch(&w)
	d.DeliverTwo(ownAddr, "one", "two")
	<-w.C
	if dst.ah == nil {
		t.Fatal("no address handle")
	}
	d.Close()
	if len(w.C) != 1 || d.queue != nil || dst.ah != nil {
		t.Errorf("%d wake-ups, queue %v, address handle %v", len(w.C), d.queue, dst.ah)
	}
	if err := d.SetDeadline(time.Now(), true, true); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a deadline after Close: %v", err)
	}
	if e := d.PollEvents(); e != PollNval {
		t.Errorf("events %#x after Close", e)
	}
	q.close()
}

// A message to no peer counts no bytes: the socket is closed, or has no destination.
func TestSendWithoutADestination(t *testing.T) {
	d := NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	if n, err := d.Send([]byte("x"), WaitMode{}); n != 0 || !errors.Is(err, syscall.EDESTADDRREQ) {
		t.Errorf("%d bytes, %v", n, err)
	}
	d.Close()
	if n, err := d.Send([]byte("x"), WaitMode{}); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %d bytes, %v", n, err)
	}
}

// withSlot returns a socket whose QP has one send slot, and a peer that the QP sends to. Nobody reads its UDP socket,
// so that it can be in a bubble of testing/synctest.
func withSlot(t *testing.T) (d *Datagram, q *datagramQP, dst *dest) {
	t.Helper()
	d = NewDatagram(JoinHub(hosted(t)), true, Options{}.WithDefaults())
	d.udp = must(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	q = must(newDatagramQP(d.hub.Host, ownAddr.Addr(), 1))(t)
	dst = &dest{to: netip.AddrPortFrom(ownAddr.Addr(), 7), q: q}
	dst.learn(7)
	d.dests[dst.to] = dst
	d.qps[ownAddr.Addr()] = q
	return d, q, dst
}

// A writer without a slot waits, and goes on with the next one. At its deadline, or if the socket is closed meanwhile,
// it has sent nothing.
func TestWriterWaitsForASlot(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(d *Datagram, q *datagramQP)
		n    int
		want error
	}{
		"a slot": {func(d *Datagram, q *datagramQP) {
			d.mu.Lock()
			defer d.mu.Unlock()
			q.free = []int{0}
			d.write.waiter.Wake()
		}, 1, nil},
		"deadline": {func(d *Datagram, _ *datagramQP) { ok(t, d.SetDeadline(time.Unix(1, 0), false, true)) }, 0,
			os.ErrDeadlineExceeded},
		"close": {func(d *Datagram, _ *datagramQP) { d.Close() }, 0, net.ErrClosed},
	} {
		synctest.Test(t, func(t *testing.T) {
			d, q, dst := withSlot(t)
			q.free = nil
			n, err := d.SendTo([]byte("x"), dst.to, WaitMode{Nonblock: true})
			if n != 0 || !errors.Is(err, syscall.EAGAIN) {
				t.Errorf("%s, without waiting: %d bytes, %v", name, n, err)
			}
			ended := make(chan struct{})
			go func() {
				n, err = d.SendTo([]byte("x"), dst.to, d.Writing())
				close(ended)
			}()
			synctest.Wait()
			c.end(d, q)
			if <-ended; n != c.n || fmt.Sprint(err) != fmt.Sprint(c.want) {
				t.Errorf("%s: %d bytes, %v, want %d and %v", name, n, err, c.n, c.want)
			}
			q.free = []int{0} // Close does not wait for it
			d.Close()
		})
	}
}

// The completion of a send makes its slot free: the next writer wakes, and callers of Poll do. A look at the events
// finds it.
func TestCompletedSendWakesTheWriter(t *testing.T) {
	for _, look := range []func(d *Datagram){
		func(d *Datagram) { d.progress() }, func(d *Datagram) { d.PollEvents() },
	} {
		d, q, dst := withSlot(t)
		w := NewWaiter()
		d.Watch(&w)
		if e := d.PollEvents(); e != PollOut {
			t.Errorf("events %#x of a socket with a free slot", e)
		}
		q.free = nil
		if e := d.PollEvents(); e != 0 {
			t.Errorf("events %#x of a socket without a free slot", e)
		}
		ok(t, q.sendToNobody(0, dst.ah))
		must(q.ch.GetEvent(context.Background()))(t).AckEvents(1)
		look(d)
		if len(q.free) != 1 || len(d.write.waiter.C) != 1 || len(w.C) != 1 {
			t.Errorf("%d free slots, %d wake-ups of the writer, %d of a caller of Poll", len(q.free), len(d.write.waiter.C),
				len(w.C))
		}
		if e := d.PollEvents(); e != PollOut {
			t.Errorf("events %#x afterwards", e)
		}
		d.DeliverTwo(ownAddr, "one", "two")
		if e := d.PollEvents(); e != PollIn|PollOut {
			t.Errorf("events %#x with a message", e)
		}
		d.Close()
	}
}

// A wait that ends leaves no wake-up unless the socket is closed: then the next waiter ends too.
func TestWakeUpsAfterAWait(t *testing.T) {
	for closed, want := range map[bool]int{false: 0, true: 1} {
		d := &Datagram{closed: closed}
		w := NewWaiter()
		w.Wake()
		d.mu.Lock()
		if err := d.pause(&w, &WaitMode{}); err != nil || len(w.C) != want {
			t.Errorf("closed %v: %v, %d wake-ups, want %d", closed, err, len(w.C), want)
		}
		d.mu.Unlock()
	}
}

// Close does not wait for ever for a send that does not complete, though the clock stands still.
func TestDrainWithoutCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, q, _ := withSlot(t)
		q.free = nil
		before := time.Now()
		if q.drain(); !q.gone || time.Since(before) > drainTime {
			t.Errorf("gone %v after %v", q.gone, time.Since(before))
		}
		d.Close()
	})
}

// Close ends a receive that waits.
func TestCloseEndsAReceive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, _ := withSlot(t)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			n, from, err := d.RecvFrom(make([]byte, 1), 0, WaitMode{})
			if n != 0 || from.IsValid() || !errors.Is(err, net.ErrClosed) {
				t.Errorf("%d bytes from %v, %v", n, from, err)
			}
		}()
		synctest.Wait()
		d.Close()
		<-ended
	})
}
