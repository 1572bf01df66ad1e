package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/link"
)

// TestShortDeadline is tolerant: a busy machine is late, but a lost timer never fires.
func TestShortDeadline(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	const late = 800 * time.Microsecond
	best := bestOf(200, func() {
		within(t, "50 µs", 50*time.Microsecond, 20*time.Second, func() { p.Wait(50 * time.Microsecond) })
	})
	t.Logf("the best of 200 waits of 50 µs took %v", best)
	if best <= late {
		return
	}
	if system := bestOf(200, func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 50_000}, nil) }); system > late/2 {
		t.Skipf("this machine is too busy: the best of 200 sleeps of 50 µs took %v", system)
	}
	t.Errorf("the best of 200 waits of 50 µs took %v: that is how late Go's timers are", best)
}

// bestOf returns the time of the fastest of n calls.
func bestOf(n int, f func()) time.Duration {
	best := time.Hour
	for range n {
		begin := time.Now()
		f()
		best = min(best, time.Since(begin))
	}
	return best
}

// TestNoWakeUpsWhilePolling watches the descriptor that Go's network poller watches: while no goroutine waits, it
// must not become readable, whatever arrives, so that a polling program has no cost.
func TestNoWakeUpsWhilePolling(t *testing.T) {
	needBatched(t)
	for n := range 2 {
		t.Run(fmt.Sprint(n+1), func(t *testing.T) { testNoWakeUpsWhilePolling(t, []netip.Addr{lo4, lo4b}[:n+1]) })
	}
}

func testNoWakeUpsWhilePolling(t *testing.T, addrs []netip.Addr) {
	l := open(t, Config{Addrs: addrs, Port: testPort(t)})
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
	// wakes polls while the packets are in the socket: a socket that is no longer readable has no event.
	wakes := func() (n int) {
		t.Helper()
		for i := range 20 {
			a := addrs[i%len(addrs)]
			fill(tx.Alloc(&link.Path{Src: a, Dst: a}, 1, 32), 1, 1)
			p.Send(tx)
			hasArrived(t, p)
			if readable() {
				n++
			}
			for turn := 1; p.Recv(&rx) != 1; turn++ {
				if turn == someTurns {
					t.Fatalf("the packet has not come in %d turns", someTurns)
				}
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
	// The check detects an armed poller.
	p.wait.raw.Control(func(park uintptr) { p.wait.arm(int(park), unix.EPOLLIN|unix.EPOLLONESHOT) })
	if wakes() == 0 {
		t.Error("packets do not wake the poller even when armed: the test proves nothing")
	}
}

// TestWaiterWithoutDescriptors checks that newWaiter returns an error if descriptors have run out, and that a waiter
// without a timerfd waits and can be woken.
func TestWaiterWithoutDescriptors(t *testing.T) {
	if os.Getenv("VERBENA_TEST_NOFILE") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWaiterWithoutDescriptors$")
		cmd.Env = append(os.Environ(), "VERBENA_TEST_NOFILE=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	newWaiterOrFail := func() *waiter {
		w, err := newWaiter()
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	newWaiterOrFail().close() // Go's poller has its descriptors now
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	var full []int
	defer func() { closeFDs(full[1:]...) }() // a run with coverage writes files afterwards
	for {
		fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		full = append(full, fd)
	}
	if w, err := newWaiter(); !errors.Is(err, unix.EMFILE) || w != nil {
		t.Errorf("without descriptors: %v, %v, want EMFILE", w, err)
	}
	unix.Close(full[0])
	w := newWaiterOrFail()
	defer w.close()
	for range 3 {
		within(t, "5 ms", 5*time.Millisecond, 20*time.Second, func() { w.wait(5 * time.Millisecond) })
	}
	if w.timer != noTimer {
		t.Fatal("there was a descriptor for the timer: the test proves nothing")
	}
	time.AfterFunc(10*time.Millisecond, w.wake)
	within(t, "a wake", 0, 20*time.Second, func() { w.wait(time.Minute) })
}

// hasArrived waits until a socket of the port has a packet: on a busy machine the kernel may deliver it after Send.
func hasArrived(t *testing.T, p *port) {
	t.Helper()
	fds := make([]unix.PollFd, 0, len(p.rx))
	for i := range p.rx {
		fds = append(fds, unix.PollFd{Fd: int32(p.rx[i].fd), Events: unix.POLLIN})
	}
	for {
		n, err := unix.Poll(fds, 20_000)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n < 1 || err != nil {
			t.Fatalf("no packet within 20 s: %v", err)
		}
		return
	}
}

// Of several sockets the one that had packets last is read without epoll_wait, and the others after a Wait, or every
// someTurns turns, and less often the longer they have no packets.
func TestSocketsAreReadDirectly(t *testing.T) {
	needBatched(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	p := l.Ports()[0].(*port)
	tx := link.NewTxBatch(1, 100)
	var rx link.RxBatch
	send := func(a netip.Addr) {
		fill(tx.Alloc(&link.Path{Src: a, Dst: a}, 1, 32), 1, 1)
		p.Send(tx)
		hasArrived(t, p)
	}
	turns := func() int {
		for n := 1; ; n++ {
			if p.Recv(&rx) > 0 {
				return n
			}
			if n > gsiTurns {
				t.Fatalf("no packet in %d turns", n)
			}
		}
	}
	for _, a := range []netip.Addr{lo4b, lo4} {
		send(a)
		turns()
		if p.scans != someTurns {
			t.Errorf("the sockets are scanned every %d turns after a packet of another one, want %d", p.scans, someTurns)
		}
		for range 2 * gsiTurns {
			send(a)
			if n := turns(); n != 1 {
				t.Errorf("a packet of the same socket after %d turns, want 1", n)
			}
		}
		if p.scans != gsiTurns {
			t.Errorf("the sockets are scanned every %d turns after packets of one, want %d", p.scans, gsiTurns)
		}
	}
	for _, a := range []netip.Addr{lo4b, lo4} {
		send(a)
		p.Wait(-1)
		if n := turns(); n != 1 {
			t.Errorf("a packet of another socket %d turns after Wait, want 1", n)
		}
	}
}

// With All a Recv looks at every socket, also at those whose turn has not come.
func TestAllSocketsAreRead(t *testing.T) {
	needBatched(t)
	l := open(t, Config{Addrs: []netip.Addr{lo4, lo4b}, Port: testPort(t)})
	p := l.Ports()[0].(*port)
	tx := link.NewTxBatch(1, 100)
	rx := link.RxBatch{All: true}
	for n := range 3 * someTurns {
		a := []netip.Addr{lo4, lo4b}[n%2]
		fill(tx.Alloc(&link.Path{Src: a, Dst: a}, 1, 32), 1, 1)
		p.Send(tx)
		hasArrived(t, p)
		if p.Recv(&rx) != 1 || rx.Packets[0].Dst != a {
			t.Fatalf("packet %d, for %v, was not received at once", n, a)
		}
	}
}
