package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/observe"
)

// TestLogEvents has each level log the events of its own.
func TestLogEvents(t *testing.T) {
	for level, want := range map[string][]string{
		"": nil, "debug": {observe.Retry, observe.Device, observe.Failure}, "info": {observe.Device, observe.Failure},
		"warn": {observe.Failure},
	} {
		var log bytes.Buffer
		stop, err := logEvents(&log, level)
		if err != nil {
			t.Fatal(err)
		}
		observe.Emit(observe.Event{Name: observe.Retry, Retries: 1})
		observe.Emit(observe.Event{Name: observe.Device, Device: "rxe0", Reason: "it is an adapter"})
		observe.Emit(observe.Event{Name: observe.Failure, Err: errors.New("the peer does not answer")})
		stop()
		lines := strings.Count(log.String(), "\n")
		if lines != len(want) {
			t.Errorf("level %q: %d lines, not %d\n%s", level, lines, len(want), &log)
		}
		for _, name := range want {
			if !strings.Contains(log.String(), "msg="+name+" ") {
				t.Errorf("level %q: no line of %s\n%s", level, name, &log)
			}
		}
	}
	if _, err := logEvents(nil, "loud"); err == nil || !strings.Contains(err.Error(), "debug, info or warn") {
		t.Errorf("unknown level: %v", err)
	}
}
