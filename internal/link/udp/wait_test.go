package udp

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
)

// within runs f, which must return within limit and not before least.
func within(t *testing.T, what string, least, limit time.Duration, f func()) time.Duration {
	t.Helper()
	began := time.Now()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("%s: not over after %v", what, limit)
	}
	took := time.Since(began)
	if took < least {
		t.Fatalf("%s: over after %v, want at least %v", what, took, least)
	}
	return took
}

func TestWait(t *testing.T) { kinds(t, testWait) }

func testWait(t *testing.T) {
	l := open(t, Config{Addrs: []netip.Addr{lo4}, Port: testPort(t)})
	p := l.Ports()[0]
	path := &link.Path{Src: lo4, Dst: lo4}
	send := func() {
		b := link.NewTxBatch(1, 100)
		fill(b.Alloc(path, 32), 1, 1)
		p.Send(b)
	}
	var rx link.RxBatch

	within(t, "deadline", 20*time.Millisecond, 5*time.Second, func() { p.Wait(20 * time.Millisecond) })
	within(t, "no time", 0, 5*time.Second, func() { p.Wait(0) })
	p.Wake()
	p.Wake()
	within(t, "Wake before Wait", 0, 5*time.Second, func() { p.Wait(-1) })
	within(t, "a used Wake", 20*time.Millisecond, 5*time.Second, func() { p.Wait(20 * time.Millisecond) })
	time.AfterFunc(20*time.Millisecond, p.Wake)
	within(t, "Wake during Wait", 10*time.Millisecond, 5*time.Second, func() { p.Wait(-1) })
	within(t, "a used Wake", 20*time.Millisecond, 5*time.Second, func() { p.Wait(20 * time.Millisecond) })
	send()
	within(t, "packet before Wait", 0, 5*time.Second, func() { p.Wait(-1) })
	within(t, "packet not yet fetched", 0, 5*time.Second, func() { p.Wait(-1) })
	if n := p.Recv(&rx); n != 1 {
		t.Fatalf("Recv: %d packets, want 1", n)
	}
	within(t, "packet fetched", 20*time.Millisecond, 5*time.Second, func() { p.Wait(20 * time.Millisecond) })
	time.AfterFunc(20*time.Millisecond, send)
	within(t, "packet during Wait", 10*time.Millisecond, 5*time.Second, func() { p.Wait(-1) })
	p.Recv(&rx)
	// A short deadline after a long one, and a long one after a short one.
	time.AfterFunc(5*time.Millisecond, p.Wake)
	within(t, "long deadline", 0, 5*time.Second, func() { p.Wait(10 * time.Second) })
	within(t, "short deadline", 5*time.Millisecond, 5*time.Second, func() { p.Wait(5 * time.Millisecond) })
	time.AfterFunc(5*time.Millisecond, p.Wake)
	within(t, "long deadline", 0, 5*time.Second, func() { p.Wait(30 * time.Millisecond) })
	within(t, "longer deadline", 50*time.Millisecond, 5*time.Second, func() { p.Wait(50 * time.Millisecond) })
	time.AfterFunc(20*time.Millisecond, func() { l.Close() })
	within(t, "Close during Wait", 10*time.Millisecond, 5*time.Second, func() { p.Wait(-1) })
	within(t, "Wait after Close", 0, 5*time.Second, func() { p.Wait(-1) })
	p.Wake()
}

// TestWakeRace has wakes and waits meet at every point. Each wake must end a wait that has not yet returned.
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
