package observe_test

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/verbena-rdma/verbena/observe"
)

// Log writes events with log/slog.
func ExampleLog() {
	plain := slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug, // retries too
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})
	stop := observe.Handle(observe.Log(slog.New(plain)))
	observe.Emit(observe.Event{Name: observe.Retry, QPN: 17, Retries: 1, Reason: "no acknowledgement"})
	stop()
	// Output:
	// level=DEBUG msg=rdma.retry rdma.qpn=17 rdma.retries=1 rdma.reason="no acknowledgement"
}

// Span is what OpenTelemetry's trace.Tracer needs to record an event after it has ended:
//
//	_, span := tracer.Start(ctx, e.Name, trace.WithTimestamp(e.Begin()), trace.WithAttributes(...))
//	span.RecordError(e.Err); span.SetStatus(codes.Error, e.Err.Error())
//	span.End(trace.WithTimestamp(e.Time))
type Span struct {
	Name       string
	Begin, End time.Time
	Attributes []slog.Attr
	Err        error
}

// An event has all that a span has, so a handler of a few lines exports traces.
func ExampleHandle_openTelemetry() {
	var exported []Span
	stop := observe.Handle(func(e observe.Event) {
		exported = append(exported, Span{e.Name, e.Begin(), e.Time, e.Attrs(), e.Err})
	})
	observe.Emit(observe.Event{Name: observe.Connect, Duration: time.Second, Err: errors.New("refused")})
	stop()
	for _, s := range exported {
		fmt.Println(s.Name, s.End.Sub(s.Begin), s.Err)
	}
	// Output: rdma.connect 1s refused
}
