package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/verbena-rdma/verbena/observe"
)

// envLog is the environment variable that selects the events which the tools log.
const envLog = "VERBENA_LOG"

// logEvents logs the events of package observe from a level on, until stop is called. Without a level it logs none.
func logEvents(w io.Writer, level string) (stop func(), err error) {
	if level == "" {
		return func() {}, nil
	}
	var least slog.Level
	switch level {
	case "debug":
		least = slog.LevelDebug
	case "info":
	case "warn":
		least = slog.LevelWarn
	default:
		return nil, fmt.Errorf("%s=%q: must be debug, info or warn", envLog, level)
	}
	return observe.Handle(observe.Log(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: least})))), nil
}
