//go:build linux && cgo

package main

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rsocket/socket"
)

func newSocket(t *testing.T) *socket.Socket {
	t.Helper()
	s, err := socket.New(socket.Inet, socket.SockStream, 0)
	if err != nil {
		t.Skipf("no rsocket: %v", err)
	}
	return s
}

// A thread may have read the handle of a socket before another thread closes it.
func TestHandleOfAClosedSocketAnswersEBADF(t *testing.T) {
	for range 3 {
		h := addSocket(newSocket(t))
		if err := dropSocket(h); err != nil {
			t.Fatal(err)
		}
		if err := rs(h).Bind(netip.MustParseAddrPort("127.0.0.1:0")); !errors.Is(err, syscall.EBADF) {
			t.Errorf("bind of a closed socket: %v; want EBADF", err)
		}
		if err := dropSocket(h); !errors.Is(err, syscall.EBADF) {
			t.Errorf("second close: %v; want EBADF", err)
		}
	}
}

func TestHandlesOfClosedSocketsAreUsedAgain(t *testing.T) {
	first := addSocket(newSocket(t))
	if err := dropSocket(first); err != nil {
		t.Fatal(err)
	}
	s := newSocket(t)
	again := addSocket(s)
	defer dropSocket(again)
	if again != first {
		t.Errorf("handle %p, want %p", again, first)
	}
	if rs(again) != s {
		t.Error("the handle has another socket")
	}
}
