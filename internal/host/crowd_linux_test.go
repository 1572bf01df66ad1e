package host

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestJoinOfManyAtATakenPort checks that each of several processes that start while the sockets of an earlier group
// stay open, and nobody leads, fails with EADDRINUSE. They connect to each other meanwhile, since each leads for a
// moment.
func TestJoinOfManyAtATakenPort(t *testing.T) {
	t.Setenv(envRun, t.TempDir())
	key := ownKey()
	l := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}), err)
	}}
	for range 2 {
		c, err := l.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(key.Addr, key.Port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	const many = 8
	results := make(chan error, many)
	for range many {
		go func() {
			_, err := Join(key, Config{RecvBuffer: 1 << 16, Open: func(join bool) (int, error) {
				time.Sleep(20 * time.Millisecond) // as on a busy machine
				return opener(key)(join)
			}})
			results <- err
		}()
	}
	for range many {
		if err := <-results; !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("%v, want EADDRINUSE", err)
		}
	}
}
