package iwtcp

import (
	"testing"
	"time"
)

// reaches waits until the goroutine of a loop has a state.
func reaches(t *testing.T, l *loop, state uint32) {
	t.Helper()
	for start := time.Now(); l.state.Load() != state; time.Sleep(10 * time.Microsecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatalf("state %d, want %d", l.state.Load(), state)
		}
	}
}

// The goroutine sleeps while programs poll, and waits for the sockets when one hands over.
func TestGoroutineSleepsWhileProgramsPoll(t *testing.T) {
	defer func(d time.Duration) { minDoze = d }(minDoze)
	minDoze = time.Hour
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	reaches(t, l, parking)
	for range 20 {
		// The goroutine may be on its way to park, after it has looked at polled: then it takes the call for the end of
		// its sleep.
		for start := time.Now(); l.state.Load() != dozing; time.Sleep(10 * time.Microsecond) {
			l.polled.Store(true)
			l.rouse() // as a socket would
			if time.Since(start) > 20*time.Second {
				t.Fatalf("state %d, want %d", l.state.Load(), dozing)
			}
		}
		l.handOver()
		reaches(t, l, parking)
	}
}

// The goroutine waits for the sockets again when no program has polled during its sleep.
func TestGoroutineWaitsAfterPolling(t *testing.T) {
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	defer l.stop()
	reaches(t, l, parking)
	l.polled.Store(true)
	l.rouse()
	for start := time.Now(); l.polled.Load(); time.Sleep(10 * time.Microsecond) {
		if time.Since(start) > 20*time.Second {
			t.Fatal("the goroutine has not noticed that a program polls")
		}
	}
	reaches(t, l, parking)
}

// A poller does not use the descriptors of a loop that has ended.
func TestPollOfAnEndedLoop(t *testing.T) {
	l, err := newLoop()
	if err != nil {
		t.Fatal(err)
	}
	l.stop()
	l.poll(true)
	if l.await(time.Hour) {
		t.Error("a wait for an ended loop")
	}
}
