package udp

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/refuse"
)

// TestWaitWakesOnce checks that the timer of a wait wakes its goroutine when the time has come, and not before, and
// that it is the kernel's: Go's are up to a millisecond late.
func TestWaitWakesOnce(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	w := l.ports[0].wait
	calls := 0
	w.try = func(fd uintptr) bool { calls++; return w.ready(fd) }
	for range 3 {
		calls = 0
		within(t, "30 ms", 30*time.Millisecond, 20*time.Second, func() { w.wait(30 * time.Millisecond) })
		if calls > 4 { // at the begin, for the timer, and for what another test may have caused
			t.Errorf("the goroutine was woken %d times in 30 ms", calls-1)
		}
	}
	if w.timer < 0 {
		t.Errorf("timer %d: must be a descriptor", w.timer)
	}
}

// TestWaitWithoutTimer checks that a wait ends at its time also if there is no timer of the kernel.
func TestWaitWithoutTimer(t *testing.T) {
	l := batchedLink(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	w := l.ports[0].wait
	w.timer = noTimer
	for range 3 {
		within(t, "5 ms", 5*time.Millisecond, 20*time.Second, func() { w.wait(5 * time.Millisecond) })
	}
	time.AfterFunc(5*time.Millisecond, w.wake)
	within(t, "a wake", 0, 20*time.Second, func() { w.wait(time.Minute) })
}

// TestOpenWithoutDescriptors checks that a link for which the process has too few descriptors is an error, and leaves
// none open, whichever is the first that is missing.
func TestOpenWithoutDescriptors(t *testing.T) {
	needBatched(t)
	cfg := Config{Addrs: []netip.Addr{lo4b, lo4c}, Port: testPort(t), Ports: 2}
	open(t, Config{Addrs: []netip.Addr{lo4}, Port: cfg.Port}) // opens the descriptors of the network poller
	before := descriptors(t)
	for n, opened := 0, false; !opened; n++ {
		if n > 100 {
			t.Fatal("the link does not open")
		}
		var held []int
		for range n {
			fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, fd)
		}
		if err := refuse.Descriptors(func() {
			closeFDs(held...)
			l, err := openBatched(cfg)
			if opened = err == nil; opened {
				l.Close()
			}
		}); err != nil {
			t.Fatal(err)
		}
		if after := descriptors(t); after != before {
			t.Fatalf("%d descriptors: %d are open, %d before", n, after, before)
		}
	}
}
