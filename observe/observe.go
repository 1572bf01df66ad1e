// Package observe reports the events of connections to the program: connections that begin, fail and end, requests that
// are sent again, queue pairs that fail, and the choice of a device. It has no C twin.
//
//	stop := observe.Handle(observe.Log(slog.Default()))
//	defer stop()
//
// An [Event] has a name, a time, a duration, attributes and an error, which is what a span of OpenTelemetry has: see
// the example. Without a handler an event costs one atomic load and no memory, and no event is on the path of a
// request that succeeds.
//
// The package owns one goroutine for each handler while it is registered. It imports the standard library only, and the
// state machines import it.
package observe

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The names of events.
const (
	// Connect: Connect of rdmacm has ended, or that of a socket or tool that uses it. Duration is the time since the
	// request was sent. Err is nil if the connection is established, or a datagram service was found.
	Connect = "rdma.connect"
	// Accept: the connection of a request that the program accepted is established, or has failed (Err). Duration is
	// the time since the request arrived.
	Accept = "rdma.accept"
	// Disconnect: an established connection has ended. Duration is the time for which it was established.
	Disconnect = "rdma.disconnect"
	// Retry: a queue pair sends requests again, for Reason. Retries is the number of tries without progress so far.
	Retry = "rdma.retry"
	// Failure: a queue pair has failed. Err is the error of the work request that failed first.
	Failure = "rdma.failure"
	// Device: Verbena has chosen a device for the program, for the traffic to Peer or because the program named none.
	// Device has its name and Reason the reason.
	Device = "rdma.device"
)

// An Event is what happened to a connection.
type Event struct {
	Name     string
	Time     time.Time     // the end
	Duration time.Duration // 0 if unknown
	// Local and Peer are addresses; their ports are service IDs (RDMA ports), 0 if they have none. Invalid if unknown.
	Local, Peer  netip.AddrPort
	QPN, DestQPN uint32 // queue pair numbers, 0 if unknown
	Retries      int
	Device       string // name of a device, empty if unknown
	Reason       string
	Err          error
}

// Begin is the time when the event began: Time less Duration.
func (e *Event) Begin() time.Time { return e.Time.Add(-e.Duration) }

// Attrs returns the attributes that are known. Their keys are those of OpenTelemetry where it has one.
func (e *Event) Attrs() []slog.Attr {
	list := make([]slog.Attr, 0, 8)
	addr := func(who string, a netip.AddrPort) {
		if a.IsValid() {
			list = append(list, slog.String("network."+who+".address", a.Addr().String()))
			if a.Port() != 0 {
				list = append(list, slog.Int("network."+who+".port", int(a.Port())))
			}
		}
	}
	addr("local", e.Local)
	addr("peer", e.Peer)
	number := func(key string, n int) {
		if n != 0 {
			list = append(list, slog.Int(key, n))
		}
	}
	number("rdma.qpn", int(e.QPN))
	number("rdma.dest_qpn", int(e.DestQPN))
	number("rdma.retries", e.Retries)
	if e.Device != "" {
		list = append(list, slog.String("rdma.device.name", e.Device))
	}
	if e.Reason != "" {
		list = append(list, slog.String("rdma.reason", e.Reason))
	}
	return list
}

// A Handler takes events, one at a time and in order, on a goroutine of its own: it may call any function. Events that
// arrive while 1,024 others wait for it are dropped and counted (Dropped).
type Handler func(Event)

// waiting is the number of events that wait for a handler.
const waiting = 1024

// observer is a registered handler.
type observer struct {
	queue chan Event
	quit  chan struct{} // closed by stop
	done  chan struct{} // closed when the handler has returned
}

var (
	current atomic.Pointer[[]*observer] // nil if there is none
	dropped atomic.Uint64
	mu      sync.Mutex // of changes of current
)

// Handle registers a handler until stop is called. Several handlers get the same events. stop returns when the handler
// has taken the events that were waiting for it; the handler itself must not call it. Both are safe for concurrent use.
func Handle(h Handler) (stop func()) {
	o := &observer{make(chan Event, waiting), make(chan struct{}), make(chan struct{})}
	change(func(list []*observer) []*observer { return append(list, o) })
	go o.run(h)
	return sync.OnceFunc(func() {
		change(func(list []*observer) []*observer {
			return slices.DeleteFunc(list, func(other *observer) bool { return other == o })
		})
		close(o.quit)
		<-o.done
	})
}

// change replaces the list of observers.
func change(f func([]*observer) []*observer) {
	mu.Lock()
	defer mu.Unlock()
	var list []*observer
	if p := current.Load(); p != nil {
		list = slices.Clone(*p)
	}
	if list = f(list); len(list) == 0 {
		current.Store(nil)
		return
	}
	current.Store(&list)
}

// run passes events to a handler.
func (o *observer) run(h Handler) {
	defer close(o.done)
	for {
		select {
		case e := <-o.queue:
			h(e)
		case <-o.quit:
			for {
				select {
				case e := <-o.queue:
					h(e)
				default:
					return
				}
			}
		}
	}
}

// On reports whether there is a handler. The packages of this module ask it before they make an event.
func On() bool { return current.Load() != nil }

// Emit passes an event to the handlers and does not wait for them. Its Time is now if it is zero.
func Emit(e Event) {
	p := current.Load()
	if p == nil {
		return
	}
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	for _, o := range *p {
		select {
		case o.queue <- e:
		default:
			dropped.Add(1)
		}
	}
}

// Dropped returns how many events were dropped since the program began; an event counts for each handler that had no
// room for it.
func Dropped() uint64 { return dropped.Load() }

// Log returns a handler that logs events: those without an error at level Info, retries at Debug, those with an error
// at Warn.
func Log(l *slog.Logger) Handler {
	return func(e Event) {
		level := slog.LevelInfo
		switch {
		case e.Err != nil:
			level = slog.LevelWarn
		case e.Name == Retry:
			level = slog.LevelDebug
		}
		ctx := context.Background()
		if !l.Enabled(ctx, level) {
			return
		}
		attrs := e.Attrs()
		if e.Duration != 0 {
			attrs = append(attrs, slog.Duration("duration", e.Duration))
		}
		if e.Err != nil {
			attrs = append(attrs, slog.String("error", e.Err.Error()))
		}
		r := slog.NewRecord(e.Time, level, e.Name, 0)
		r.AddAttrs(attrs...)
		_ = l.Handler().Handle(ctx, r) // as slog's own functions do
	}
}
