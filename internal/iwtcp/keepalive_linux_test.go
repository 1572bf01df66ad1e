package iwtcp

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// The idle time of keep-alive is rounded up to seconds and limited; 0 switches the checks off. It holds for later
// connections of the QP too.
func TestOptionsOfKeepAlive(t *testing.T) {
	q, _, _ := responder(t, func(bool) {})
	q.mu.Lock()
	fd := q.fd
	q.mu.Unlock()
	option := func(level, o int) int {
		t.Helper()
		n, err := unix.GetsockoptInt(fd, level, o)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	check := func(idle time.Duration, on, s, patience int) {
		t.Helper()
		if n := option(unix.SOL_SOCKET, unix.SO_KEEPALIVE); n != on {
			t.Errorf("%v: on %d, want %d", idle, n, on)
		}
		if n := option(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT); n != patience {
			t.Errorf("%v: patience %d ms, want %d", idle, n, patience)
		}
		if on == 0 {
			return
		}
		for o, want := range map[int]int{unix.TCP_KEEPIDLE: s, unix.TCP_KEEPINTVL: 1, unix.TCP_KEEPCNT: 5} {
			if n := option(unix.IPPROTO_TCP, o); n != want {
				t.Errorf("%v: option %d is %d, want %d", idle, o, n, want)
			}
		}
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1); err != nil {
		t.Fatal(err)
	}
	q.SetKeepAlive(0)
	check(0, 0, 0, 0)
	for _, c := range []struct {
		idle        time.Duration
		s, patience int
	}{{1, 1, 6000}, {time.Second, 1, 6000}, {time.Second + 1, 2, 7000}, {100 * time.Hour, 32767, 32772000},
		{3 * time.Second, 3, 8000}} {
		q.SetKeepAlive(c.idle)
		check(c.idle, 1, c.s, c.patience)
	}
	q.SetKeepAlive(0)
	check(0, 0, 0, 0)

	e := newEnd(t, new(Device), 2, 8)
	e.SetKeepAlive(2 * time.Second)
	startWith(t, e.QP, iwarp.Params{}, func(bool) {})
	e.mu.Lock()
	fd = e.fd
	e.mu.Unlock()
	check(2*time.Second, 1, 2, 7000)
	if n := option(unix.IPPROTO_TCP, unix.TCP_NODELAY); n == 0 {
		t.Error("TCP may delay short segments")
	}
}
