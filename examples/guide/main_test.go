package main

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/loopback"
)

func TestMain(m *testing.M) {
	// A separate address avoids conflicts with other programs on this machine.
	if err := os.Setenv("VERBENA_DEVICES", "vrb_guide="+addr); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

var addr = loopback.Addr(1)

// Both ends run in this process. Their output must be in the guide.
func TestBothEnds(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var server, client strings.Builder
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			err = serve(conn, &server)
		}
		done <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(conn, &client); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, output := range []string{server.String(), client.String()} {
		if output == "" || !strings.Contains(string(page), output) {
			t.Errorf("the guide does not have the output %q", output)
		}
	}
}

// Without a server the client says that it must be started first.
func TestNoServer(t *testing.T) {
	err := run([]string{addr}, io.Discard)
	var refused *net.OpError // of which Windows has a number of its own
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "start it first") {
		t.Error(err)
	}
}
