package udp

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// TestShortDeadline is loose: a busy machine is late, a lost timer never comes.
func TestShortDeadline(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	best := time.Hour
	for range 200 {
		took := within(t, "50 µs", 50*time.Microsecond, 5*time.Second, func() { p.Wait(50 * time.Microsecond) })
		best = min(best, took)
	}
	t.Logf("the best of 200 waits of 50 µs took %v", best)
	if best > 800*time.Microsecond {
		t.Errorf("the best of 200 waits of 50 µs took %v: that is how late Go's timers are", best)
	}
}

// TestNoWakeUpsWhilePolling watches the descriptor that Go's network poller watches: while nobody
// waits it must not become readable, whatever arrives, so that a polling program pays nothing for it.
func TestNoWakeUpsWhilePolling(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	p := l.Ports()[0].(*port)
	spy, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(spy)
	p.wait.raw.Control(func(park uintptr) {
		err = unix.EpollCtl(spy, unix.EPOLL_CTL_ADD, int(park), &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
	})
	if err != nil {
		t.Fatal(err)
	}
	readable := func() bool {
		var events [1]unix.EpollEvent
		n, err := unix.EpollWait(spy, events[:], 0)
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
	tx := link.NewTxBatch(1, 100)
	var rx link.RxBatch
	// wakes looks while the packets are in the socket: what is not readable any more is no event.
	wakes := func() (n int) {
		t.Helper()
		for i := range 20 {
			a := []netip.Addr{lo4, lo4b}[i%2]
			fill(tx.Alloc(&link.Path{Src: a, Dst: a}, 1, 32), 1, 1)
			p.Send(tx)
			if readable() {
				n++
			}
			if p.Recv(&rx) != 1 {
				t.Fatal("the packet has not come")
			}
		}
		return n
	}
	if n := wakes(); n > 0 {
		t.Errorf("%d of 20 packets woke the poller before any Wait", n)
	}
	for _, end := range []struct {
		name string
		f    func()
	}{
		{"Wake", func() { p.Wake(); p.Wait(-1) }},
		{"Wake during Wait", func() { time.AfterFunc(5*time.Millisecond, p.Wake); p.Wait(-1) }},
		{"deadline", func() { p.Wait(time.Millisecond) }},
		{"packet", func() {
			fill(tx.Alloc(&link.Path{Src: lo4, Dst: lo4}, 1, 32), 1, 1)
			p.Send(tx)
			p.Wait(-1)
			p.Recv(&rx)
		}},
	} {
		end.f()
		readable() // what the wait itself left
		if n := wakes(); n > 0 {
			t.Errorf("after a Wait that ended by %s, %d of 20 packets woke the poller", end.name, n)
		}
	}
	// The spy does see what it should.
	p.wait.raw.Control(func(park uintptr) { p.wait.arm(int(park), unix.EPOLLIN|unix.EPOLLONESHOT) })
	if wakes() == 0 {
		t.Error("packets do not wake the poller even when armed: this test sees nothing")
	}
}
