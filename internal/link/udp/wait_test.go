package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// within runs f, which must return within limit and not before least.
func within(t *testing.T, what string, least, limit time.Duration, f func()) {
	t.Helper()
	began := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s: not over after %v", what, limit)
	}
	if took := time.Since(began); took < least {
		t.Fatalf("%s: over after %v, want at least %v", what, took, least)
	}
}

func TestWait(t *testing.T) { kinds(t, testWait) }

func testWait(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	path := &link.Path{Src: lo4, Dst: lo4}
	send := func() {
		b := link.NewTxBatch(1, 100)
		fill(b.Alloc(path, 1, 32), 1, 1)
		p.Send(b)
	}
	const long = 20 * time.Second
	sleeps := func(what string, d time.Duration) {
		t.Helper()
		within(t, what, d, long, func() { p.Wait(d) })
	}
	// endedBy checks that event ends a Wait(d) that has begun, or is about to.
	endedBy := func(what string, d time.Duration, event func()) {
		t.Helper()
		happened := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(happened); event() })
		within(t, what, 0, long, func() { p.Wait(d) })
		select {
		case <-happened:
		default:
			if d < 0 {
				t.Errorf("%s: Wait returned before it", what)
			}
		}
		<-happened
	}

	sleeps("deadline", 20*time.Millisecond)
	sleeps("no time", 0)
	p.Wake()
	p.Wake()
	within(t, "Wake before Wait", 0, long, func() { p.Wait(-1) })
	sleeps("a used Wake", 20*time.Millisecond)
	endedBy("Wake", -1, p.Wake)
	sleeps("a used Wake", 20*time.Millisecond)
	send()
	within(t, "packet before Wait", 0, long, func() { p.Wait(-1) })
	within(t, "packet not yet fetched", 0, long, func() { p.Wait(-1) })
	receive(t, p, 1)
	sleeps("packet fetched", 20*time.Millisecond)
	endedBy("packet", -1, send)
	receive(t, p, 1)
	// A short deadline after a long one that was not reached, and the reverse.
	endedBy("Wake before a deadline", time.Hour, p.Wake)
	sleeps("shorter deadline", 5*time.Millisecond)
	endedBy("packet before a deadline", 30*time.Millisecond, send)
	receive(t, p, 1)
	sleeps("longer deadline", 50*time.Millisecond)
	endedBy("Close", -1, func() { l.Close() })
	within(t, "Wait after Close", 0, long, func() { p.Wait(-1) })
	p.Wake()
}

// TestWakeRace makes wakes and waits meet at every point. Each wake must end a wait that has not yet returned.
func TestWakeRace(t *testing.T) { kinds(t, testWakeRace) }

func testWakeRace(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	ball, back := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(back)
		for range ball {
			p.Wake()
		}
	}()
	within(t, "10000 wakes", 0, 30*time.Second, func() {
		for range 10000 {
			ball <- struct{}{}
			p.Wait(-1)
		}
		close(ball)
		<-back
	})
}
