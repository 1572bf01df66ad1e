package rsocket

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// configured has the package find other configuration files until the test is over.
func configured(t *testing.T, change func(*defaults)) {
	old := config
	d := config()
	change(&d)
	config = func() defaults { return d }
	t.Cleanup(func() { config = old })
}

// unwoken is a listening socket with nothing to accept, and what gives it a connection without waking anybody.
func unwoken() (s *Socket, connection func()) {
	a := &acceptor{queue: make(chan *stream, 1), done: make(chan struct{})}
	return &Socket{l: a}, func() { a.queue <- nil }
}

// Poll looks again and again for as long as polling_time says, or until it finds something, or until its own time is over.
func TestR_POLL_07_PollIsBusyFirst(t *testing.T) {
	s, connection := unwoken()
	fds := []PollFD{{Socket: s, Events: PollIn}}
	spin := func(polling, timeout time.Duration) (p poller, n int) {
		t.Helper()
		configured(t, func(d *defaults) { d.polling = polling })
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
	configured(t, func(d *defaults) { d.polling, d.wakeUp = time.Hour, time.Hour })
	time.AfterFunc(5*time.Millisecond, connection)
	start := time.Now()
	if n, err := Poll(fds, 10*time.Second); n != 1 || fds[0].Revents != PollIn || err != nil || time.Since(start) >= 10*time.Second {
		t.Errorf("%d sockets, %#x, %v after %v", n, fds[0].Revents, err, time.Since(start))
	}
	if _, n := spin(time.Hour, -1); n != 1 {
		t.Errorf("%d events", n)
	}
	if _, n := spin(0, -1); n != 0 {
		t.Error("it looks though polling_time is 0")
	}
}

// Calls of a stream do the same, for as long as Options.Polling says, which polling_time is the default of.
func TestR_POLL_07_StreamsAreBusyFirst(t *testing.T) {
	configured(t, func(d *defaults) { d.polling = 77 * time.Microsecond })
	if got := (Options{}).withDefaults().Polling; got != 77*time.Microsecond {
		t.Errorf("the default is %v", got)
	}
	if got := (Options{Polling: -1}).withDefaults().Polling; got != -1 {
		t.Errorf("-1 has become %v", got)
	}
	st := newStream(nil, Options{Polling: 5 * time.Millisecond})
	st.state = streamConnected
	busy := func() (looks int, took time.Duration) {
		st.mu.Lock()
		defer st.mu.Unlock()
		var p patience
		start := time.Now()
		for st.spin(&p) && looks < 1e6 {
			looks++
		}
		return looks, time.Since(start)
	}
	if looks, took := busy(); looks < 1e6 && took < 5*time.Millisecond {
		t.Errorf("%d looks in %v", looks, took)
	}
	st.poll = time.Hour
	if looks, _ := busy(); looks != 1e6 {
		t.Errorf("%d looks in an hour", looks)
	}
	for _, off := range []time.Duration{0, -1} {
		st.poll = off
		if looks, _ := busy(); looks != 0 {
			t.Errorf("%d looks with %v", looks, off)
		}
	}
	st.poll, st.state = time.Hour, streamConnecting
	if looks, _ := busy(); looks != 0 {
		t.Errorf("%d looks before there is a connection", looks)
	}
}

// So do calls of a datagram socket that has a QP to look at.
func TestR_POLL_07_DatagramsAreBusyFirst(t *testing.T) {
	configured(t, func(d *defaults) { d.polling = 5 * time.Millisecond })
	d := &datagram{}
	d.mu.Lock()
	defer d.mu.Unlock()
	var p patience
	if d.spin(&p) {
		t.Error("it is busy without a QP")
	}
	d.qps = map[netip.Addr]*datagramQP{{}: {}}
	start := time.Now()
	for d.spin(&p) {
		continue
	}
	if took := time.Since(start); took < 5*time.Millisecond {
		t.Errorf("it was busy for %v", took)
	}
}

// Who missed being woken looks again by himself, as often as wake_up_interval says, but no longer than he wants to wait.
func TestR_POLL_08_MissedWakeUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		configured(t, func(d *defaults) { d.wakeUp = 70 * time.Millisecond })
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
