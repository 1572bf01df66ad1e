package observe_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/observe"
)

// Handlers get the events in order, also those that wait when stop is called, and none after it.
func TestHandlersGetEventsInOrder(t *testing.T) {
	var a, b []int
	block := make(chan struct{})
	stopA := observe.Handle(func(e observe.Event) { <-block; a = append(a, e.Retries) })
	stopB := observe.Handle(func(e observe.Event) { b = append(b, e.Retries) })
	for i := range 100 {
		observe.Emit(observe.Event{Name: observe.Retry, Retries: i})
	}
	stopB() // although the other handler blocks
	observe.Emit(observe.Event{Name: observe.Retry, Retries: 100})
	close(block)
	stopA()
	stopA()
	observe.Emit(observe.Event{Name: observe.Retry, Retries: 101})
	if observe.On() {
		t.Error("a handler is left")
	}
	for _, c := range []struct {
		got  []int
		want int
	}{{a, 101}, {b, 100}} {
		if len(c.got) != c.want {
			t.Fatalf("%d events, want %d", len(c.got), c.want)
		}
		for i, n := range c.got {
			if n != i {
				t.Fatalf("event %d is %d", i, n)
			}
		}
	}
}

// A handler that blocks costs bounded memory: further events are dropped and counted.
func TestSlowHandlerDrops(t *testing.T) {
	block := make(chan struct{})
	got := 0
	stop := observe.Handle(func(observe.Event) { <-block; got++ })
	before := observe.Dropped()
	const sent = 5000
	for range sent {
		observe.Emit(observe.Event{})
	}
	lost := int(observe.Dropped() - before)
	close(block)
	stop()
	if got+lost != sent || got < 1024 || got > 1025 {
		t.Errorf("%d events taken, %d dropped", got, lost)
	}
}

func TestConcurrentUse(t *testing.T) {
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 200 {
				n := 0
				stop := observe.Handle(func(observe.Event) { n++ })
				observe.Emit(observe.Event{})
				stop()
				if n == 0 {
					t.Error("the handler's own event is lost")
					return
				}
			}
		})
	}
	all.Wait()
}

func TestLog(t *testing.T) {
	var out bytes.Buffer
	log := observe.Log(slog.New(slog.NewTextHandler(&out, nil)))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	e := observe.Event{Name: observe.Connect, Time: at, Duration: 3 * time.Millisecond, QPN: 17, DestQPN: 18,
		Local: netip.MustParseAddrPort("10.0.0.1:0"), Peer: netip.MustParseAddrPort("10.0.0.2:7174")}
	log(e)
	e.Err = errors.New("nobody\nthere")
	log(e)
	log(observe.Event{Name: observe.Retry, Time: at, Reason: "x"}) // below Info
	want := `time=2026-01-02T03:04:05.000Z level=INFO msg=rdma.connect network.local.address=10.0.0.1 ` +
		`network.peer.address=10.0.0.2 network.peer.port=7174 rdma.qpn=17 rdma.dest_qpn=18 duration=3ms` + "\n"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("%q, want %q", &out, want)
	}
	if rest := out.String()[min(len(want), out.Len()):]; !strings.Contains(rest, `level=WARN`) ||
		!strings.HasSuffix(rest, `error="nobody\nthere"`+"\n") || strings.Count(rest, "\n") != 1 {
		t.Errorf("%q", rest)
	}
	if b := e.Begin(); !b.Equal(at.Add(-3 * time.Millisecond)) {
		t.Errorf("it began at %v", b)
	}
}

// Without a handler nothing is allocated.
func TestOffAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(1000, func() {
		if observe.On() {
			observe.Emit(observe.Event{Name: observe.Retry, Reason: "x"})
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkOff(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if observe.On() {
			observe.Emit(observe.Event{Name: observe.Retry, Reason: "x"})
		}
	}
}

func BenchmarkOn(b *testing.B) {
	stop := observe.Handle(func(observe.Event) {})
	defer stop()
	b.ReportAllocs()
	for b.Loop() {
		observe.Emit(observe.Event{Name: observe.Retry, Reason: "x"})
	}
}
