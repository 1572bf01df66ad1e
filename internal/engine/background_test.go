package engine

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/notify"
)

// An eventful CQ has a goroutine that waits for its events.
type eventful struct {
	silent
	events chan struct{}
	waits  atomic.Bool // a goroutine is ready, and was not let run
	missed atomic.Int32
}

func (e *eventful) Completion() {
	if e.waits.Swap(true) {
		e.missed.Add(1)
	}
	notify.Goroutine()
	e.events <- struct{}{}
}

// TestGoroutinesRunAfterAnEvent: the background goroutine lets the goroutine run that an event has made ready before it
// goes on looking for packets.
func TestGoroutinesRunAfterAnEvent(t *testing.T) {
	w := &eventful{events: make(chan struct{}, 16)}
	before := gosched
	t.Cleanup(func() { gosched = before }) // after the engine has ended
	gosched = func() { w.waits.Store(false); runtime.Gosched() }
	e := testEngine(t, 4, Config{})
	a, b := e.NewCQ(64, 1, w), e.NewCQ(64, 2, silent{})
	qa, _ := pair(t, e, a, b)
	for i := range 12 {
		if err := a.Arm(false); err != nil {
			t.Fatal(err)
		}
		if err := postWrite(qa, uint64(i)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-w.events:
		case <-time.After(20 * time.Second):
			t.Fatal("no event")
		}
	}
	for begin := time.Now(); w.waits.Load(); time.Sleep(time.Millisecond) {
		if time.Since(begin) > 20*time.Second {
			t.Fatal("the last goroutine was not let run")
		}
	}
	if n := w.missed.Load(); n > 0 {
		t.Errorf("%d of 12 goroutines were not let run before the next event", n)
	}
}
