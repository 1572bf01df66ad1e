package socket

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// unwoken returns a listening socket with nothing to accept, and a function that gives it a connection without a
// wake-up.
func unwoken() (s *Socket, connection func()) {
	a, enqueue := sock.Unserved()
	return &Socket{l: a}, enqueue
}

// Poll looks again and again for as long as polling_time says, or until it finds something, or until its own time
// is over.
func TestR_POLL_07_PollIsBusyFirst(t *testing.T) {
	s, connection := unwoken()
	fds := []PollFD{{Socket: s, Events: PollIn}}
	spin := func(polling, timeout time.Duration) (p poller, n int) {
		t.Helper()
		configured(t, func(d *sock.Defaults) { d.Polling = polling })
		p = poller{fds: fds, timeout: timeout, start: time.Now()}
		n, err := p.spin()
		if err != nil {
			t.Fatal(err)
		}
		return p, n
	}
	for _, polling := range []time.Duration{time.Millisecond, 30 * time.Millisecond} {
		if p, n := spin(polling, -1); n != 0 || time.Since(p.start) < polling {
			t.Errorf("%d events after %v, polling_time is %v", n, time.Since(p.start), polling)
		}
	}
	if p, n := spin(time.Hour, 20*time.Millisecond); n != 0 || p.left() != 0 {
		t.Errorf("%d events, with %v left", n, p.left())
	}
	// Asleep it would find it in an hour only.
	configured(t, func(d *sock.Defaults) { d.Polling, d.WakeUp = time.Hour, time.Hour })
	time.AfterFunc(5*time.Millisecond, connection)
	start := time.Now()
	if n, err := Poll(fds, 10*time.Second); n != 1 || fds[0].Revents != PollIn || err != nil ||
		time.Since(start) >= 10*time.Second {
		t.Errorf("%d sockets, %#x, %v after %v", n, fds[0].Revents, err, time.Since(start))
	}
	if _, n := spin(time.Hour, -1); n != 1 {
		t.Errorf("%d events", n)
	}
	for range 100 { // one of some polls would be long
		if _, n := spin(0, -1); n != 0 {
			t.Error("it polls though polling_time is 0")
		}
	}
}

// A waiter that missed a wake-up looks again at each wake_up_interval, until its time-out.
func TestR_POLL_08_MissedWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configured(t, func(d *sock.Defaults) { d.WakeUp = 70 * time.Millisecond })
		s, connection := unwoken()
		fds := []PollFD{{Socket: s, Events: PollIn}}
		start := time.Now()
		if n, err := Poll(fds, 150*time.Millisecond); n != 0 || err != nil || time.Since(start) != 150*time.Millisecond {
			t.Errorf("%d sockets, %v after %v", n, err, time.Since(start))
		}
		start = time.Now()
		time.AfterFunc(100*time.Millisecond, connection)
		if n, err := Poll(fds, -1); n != 1 || err != nil || time.Since(start) != 140*time.Millisecond {
			t.Errorf("%d sockets, %v after %v", n, err, time.Since(start))
		}
	})
}
