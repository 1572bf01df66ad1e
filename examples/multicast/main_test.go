package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

var addr = loopback.Addr(1)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_multicast="+addr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// A receiver and a sender use the same device.
func TestReceiverAndSender(t *testing.T) {
	if runtime.GOOS != "linux" || os.Getenv("VERBENA_UDP") == "plain" {
		t.Skip("plain sockets have no multicast")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const group = "239.4.1.2"
	var received, sent bytes.Buffer
	ready, done := make(chan struct{}), make(chan error)
	go func() {
		r := &member{out: &received, ready: func() { close(ready) }}
		done <- r.run(ctx, addr, group, false)
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	s := &member{out: &sent, ready: func() {}}
	if err := s.run(ctx, addr, group, true); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for i := range messages {
		if want := fmt.Sprintf("message %d, from QP 0x", i); !strings.Contains(received.String(), want) {
			t.Errorf("no %q in\n%s", want, &received)
		}
	}
	if sent.String() != "sent 10 messages\n" {
		t.Errorf("%q", &sent)
	}
	for _, bad := range [][2]string{{"x", group}, {addr, "x"}, {addr, "127.0.0.1"}, {"192.0.2.77", group}} {
		if err := s.run(ctx, bad[0], bad[1], true); err == nil {
			t.Errorf("%v: no error", bad)
		}
	}
}

func TestMisused(t *testing.T) {
	for _, c := range []struct{ bind, group, want string }{
		{"", "239.1.2.3", `-b "": must be an IP address of this host`},
		{addr, "x", `-m "x": must be the IP address of a multicast`},
	} {
		m := &member{out: io.Discard, ready: func() {}}
		if err := m.run(t.Context(), c.bind, c.group, false); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}
