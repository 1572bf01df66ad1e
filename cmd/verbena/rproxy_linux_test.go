package main

import (
	"context"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGINT and SIGTERM end rproxy with status 0, SIGINT also if the shell had it ignored.
func TestSignalsEndRproxy(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(c, "sh", "-c", `trap '' INT; exec "$0" "$@"`, link(t, "verbena"), "rproxy",
			"tcp:127.0.0.1:0", "tcp:127.0.0.1:9")
		if line, err := startToLine(t, cmd); err != nil || !strings.HasPrefix(line, "rproxy: 127.0.0.1:") {
			t.Fatalf("%q, %v", line, err)
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", sig, err)
		}
	}
}
