package iwtcp

import (
	"io"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSilenceOfARead checks that the end of a connection is reported as that of a silent peer if TCP has given up, also
// if a read is told first.
func TestSilenceOfARead(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ETIMEDOUT: true, unix.EHOSTUNREACH: true, unix.ENETUNREACH: true, unix.ECONNRESET: false, io.EOF: false,
	} {
		reported := make(chan bool, 1)
		q, _, _ := responder(t, func(silent bool) { reported <- silent })
		q.mu.Lock()
		q.eof = true
		q.end(err)
		q.drive()
		q.close()
		q.mu.Unlock()
		select {
		case got := <-reported:
			if got != want {
				t.Errorf("%v: silent %v, want %v", err, got, want)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v: no report", err)
		}
	}
}

// TestClosedConnectionDoesNotLeave checks that a connection that lost its place is not taken for one whose request has
// come, and that its source then counts the others only.
func TestClosedConnectionDoesNotLeave(t *testing.T) {
	w := newWaiting(8)
	w.limit(8, 2, 0)
	source := netip.MustParseAddr("127.0.0.2")
	var all []*waiter
	for range 3 {
		n := w.enter(new(closer), source)
		if n == nil {
			t.Fatal("no place")
		}
		all = append(all, n)
	}
	for i, want := range []bool{false, true, true, false} {
		if got := w.leave(all[i%3]); got != want {
			t.Errorf("connection %d leaves: %v, want %v", i%3, got, want)
		}
	}
	if n := w.number(""); n != 0 {
		t.Errorf("%d connections wait", n)
	}
}
