package iwtcp

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	"github.com/verbena-rdma/verbena/internal/loopback"
)

// atConnect calls do before each connection of TCP, with its number from 1. The pauses between them are first and
// upward.
func atConnect(t *testing.T, first time.Duration, do func(n int)) {
	t.Helper()
	oldFirst, oldLast := pauseFirst, pauseLast
	t.Cleanup(func() { pauseFirst, pauseLast = oldFirst, oldLast })
	pauseFirst, pauseLast = first, 4*first
	n := 0
	beforePrepare(t, func(syscall.RawConn) error {
		n++
		do(n)
		return nil
	})
}

// closedPort is a port at which no socket is, and that no other test gets: freePort's may be another's meanwhile.
func closedPort(t *testing.T) uint16 {
	t.Helper()
	port, err := strconv.ParseUint(loopback.Port(), 10, 16)
	if err != nil {
		t.Fatal(err)
	}
	return uint16(port)
}

// A dialer whose server is about to listen again, as that of perftest between two connections, tries again. The
// connection keeps the port of its own side.
func TestDialBeforeTheServerListens(t *testing.T) {
	for _, port := range []uint16{0, closedPort(t)} {
		at := netip.AddrPortFrom(loopbackAny.Addr(), closedPort(t))
		atConnect(t, time.Millisecond, func(n int) {
			if n != 3 {
				return
			}
			l, err := Listen(at, false, func(r *Request) {
				if _, remote := r.Addrs(); port != 0 && remote.Port() != port {
					t.Errorf("the port is %d, not %d", remote.Port(), port)
				}
				_ = r.Reject([]byte("here"))
			})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(l.Close)
		})
		_, err := Dial(t.Context(), netip.AddrPortFrom(loopbackAny.Addr(), port), at, iwarp.Options{})
		if no := (*Refused)(nil); !errors.As(err, &no) || string(no.Private) != "here" {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// A dialer whose server does not listen gives up, and a context ends its pauses.
func TestDialGivesUp(t *testing.T) {
	at := netip.AddrPortFrom(loopbackAny.Addr(), closedPort(t))
	tries := 0
	atConnect(t, time.Millisecond, func(n int) { tries = n })
	if _, err := Dial(t.Context(), loopbackAny, at, iwarp.Options{}); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	if tries != 4 { // after pauses of 1, 2 and 4 ms
		t.Errorf("%d tries", tries)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	atConnect(t, time.Hour, func(int) { time.AfterFunc(time.Millisecond, cancel) })
	if _, err := Dial(ctx, loopbackAny, at, iwarp.Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
