package sock

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// configured has the package find other configuration files until the test is over.
func configured(t *testing.T, change func(*Defaults)) {
	old := Config
	d := Config()
	change(&d)
	Config = func() Defaults { return d }
	t.Cleanup(func() { Config = old })
}

// Calls of a stream do the same, for as long as Options.Polling says, which polling_time is the default of.
func TestR_POLL_07_StreamsAreBusyFirst(t *testing.T) {
	configured(t, func(d *Defaults) { d.Polling = 77 * time.Microsecond })
	if got := (Options{}).WithDefaults().Polling; got != 77*time.Microsecond {
		t.Errorf("the default is %v", got)
	}
	if got := (Options{Polling: -1}).WithDefaults().Polling; got != -1 {
		t.Errorf("-1 has become %v", got)
	}
	st := NewStream(nil, Options{Polling: 5 * time.Millisecond})
	st.state = streamConnected
	busy := func() (looks int, took time.Duration) {
		st.mu.Lock()
		defer st.mu.Unlock()
		var p WaitMode
		start := time.Now()
		for st.spin(&p) && looks < 1e6 {
			looks++
		}
		return looks, time.Since(start)
	}
	if looks, took := busy(); looks < 1<<16 && took < 5*time.Millisecond {
		t.Errorf("%d looks in %v", looks, took)
	}
	st.poll = time.Hour
	if looks, _ := busy(); looks != 1e6 {
		t.Errorf("%d looks in an hour", looks)
	}
	for _, off := range []time.Duration{0, -1} {
		st.poll = off
		var p WaitMode
		st.mu.Lock()
		for range 10 {
			if st.spin(&p) {
				t.Errorf("a look with %v", off)
			}
		}
		st.mu.Unlock()
	}
	st.poll, st.state = time.Hour, streamConnecting
	if looks, _ := busy(); looks != 0 {
		t.Errorf("%d looks before there is a connection", looks)
	}
}

// A clock that stands still, as virtual time does, ends the polls. One that moves in steps, as on Windows, does not
// end them at once.
func TestPollsOnAClockThatStandsStill(t *testing.T) {
	for limit, want := range map[time.Duration]int{
		time.Microsecond: 64, 65 * aPoll: 65, 50 * time.Microsecond: 1000, time.Hour: 1 << 16,
	} {
		synctest.Test(t, func(t *testing.T) {
			var s Spin
			s.Begin(limit, nil)
			polls := 0
			for polls < 1<<17 && s.Busy() {
				polls++
			}
			if polls < want || polls > want+clockEvery {
				t.Errorf("limit %v: %d polls, want %d", limit, polls, want)
			}
		})
	}
}

// So do calls of a datagram socket that has a QP to look at.
func TestR_POLL_07_DatagramsAreBusyFirst(t *testing.T) {
	configured(t, func(d *Defaults) { d.Polling = 5 * time.Millisecond })
	d := &Datagram{}
	d.mu.Lock()
	defer d.mu.Unlock()
	var p WaitMode
	if d.spin(&p) {
		t.Error("it is busy without a QP")
	}
	d.qps = map[netip.Addr]*datagramQP{{}: {}}
	start, looks := time.Now(), 0
	for d.spin(&p) {
		looks++
	}
	if took := time.Since(start); took < 5*time.Millisecond && looks < 1<<16 { // the clock may have stood still
		t.Errorf("it was busy for %v, %d looks", took, looks)
	}
}

// The polls end when the clock has reached the limit. Until then they go on, however many they are, once it has moved.
func TestPollsEndAtTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for passed, want := range map[time.Duration]bool{
			0: false, 1: true, time.Second - 1: true, time.Second: false, time.Second + 1: false,
		} {
			s := Spin{limit: time.Second, start: time.Now(), polls: 1 << 20}
			time.Sleep(passed)
			if got := s.Busy(); got != want {
				t.Errorf("after %v: it polls %v", passed, got)
			}
		}
	})
}
