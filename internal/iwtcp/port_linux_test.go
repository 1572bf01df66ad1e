package iwtcp

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// only makes the sockets of a dialer take ephemeral ports of one number.
func only(t *testing.T, port uint16) {
	t.Helper()
	beforePrepare(t, func(c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_LOCAL_PORT_RANGE, int(port)<<16|int(port))
		}); e != nil {
			return e
		}
		if errors.Is(err, syscall.ENOPROTOOPT) {
			t.Skip("the kernel has no ranges of ports of a socket")
		}
		return err
	})
}

// beforePrepare calls do with each socket of a dialer first.
func beforePrepare(t *testing.T, do func(c syscall.RawConn) error) {
	t.Helper()
	old := prepare
	t.Cleanup(func() { prepare = old })
	prepare = func(c syscall.RawConn, anyPort bool) error { return errors.Join(do(c), old(c, anyPort)) }
}

// freePort is one of the ports that the system gives to clients, at which no socket is.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := Listen(loopbackAny, false, func(*Request) {})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return l.Port()
}

// Connections to several destinations share a port of their own side: a client is not limited to as many connections as
// there are ports.
func TestConnectionsShareAnEphemeralPort(t *testing.T) {
	for _, host := range []string{"127.0.0.1", "::1"} {
		t.Run(host, func(t *testing.T) {
			any := netip.AddrPortFrom(netip.MustParseAddr(host), 0)
			base, port := prepare, freePort(t)
			only(t, port)
			for i := range 3 {
				l, err := Listen(any, false, func(r *Request) {
					c, err := r.Accept(iwarp.Options{})
					if err != nil {
						t.Error(err)
						return
					}
					t.Cleanup(c.Close)
				})
				if err != nil {
					t.Skip(err)
				}
				t.Cleanup(l.Close)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				c, err := Dial(ctx, any, plain(l.l.Addr()), iwarp.Options{})
				for n := 0; i == 0 && n < 20 && errors.Is(err, syscall.EADDRNOTAVAIL); n++ { // another process has the port
					prepare, port = base, freePort(t)
					only(t, port)
					c, err = Dial(ctx, any, plain(l.l.Addr()), iwarp.Options{})
				}
				cancel()
				if err != nil {
					t.Fatalf("connection %d: %v", i+1, err)
				}
				t.Cleanup(c.Close)
				if at, _ := c.Addrs(); at.Port() != port {
					t.Errorf("connection %d is at port %d, want %d", i+1, at.Port(), port)
				}
			}
		})
	}
}
