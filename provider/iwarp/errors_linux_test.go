package iwarp_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	own "github.com/verbena-rdma/verbena/internal/loopback"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// busyPort is a TCP port at which a socket is that does not use iWARP.
func busyPort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4zero})
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// Errors of the usual mistakes have the call, the ID, what was wrong and what is allowed, once each and in one line.
func TestErrorTexts(t *testing.T) {
	h := newHost(t)
	says := func(err error, errno syscall.Errno, want string) {
		t.Helper()
		if !errors.Is(err, errno) || err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	t.Run("nobody listens", func(t *testing.T) {
		to, err := netip.ParseAddrPort(loopback.String() + ":" + own.Port())
		must(t, err)
		id, ch := resolved(t, h, to)
		equip(t, id, ch)
		must(t, id.Connect(t.Context(), nil))
		ev := event(t, ch, rdmacm.EventRejected)
		says(ev.Err(), syscall.ECONNREFUSED, fmt.Sprintf("connect: the peer refused: no program listens on its TCP port "+
			"%d: start the server first, and compare address, port and VERBENA_TRANSPORT (ECONNREFUSED) [TCP ID 127.0.0.1 "+
			"to %v]", to.Port(), to))
		must(t, ev.Ack())
	})
	create := func(t *testing.T) *rdmacm.ID {
		t.Helper()
		id, err := h.CreateID(nil, rdmacm.PSTCP, nil)
		must(t, err)
		t.Cleanup(func() { must(t, id.Close()) })
		return id
	}
	t.Run("port in use", func(t *testing.T) {
		id, port := create(t), busyPort(t)
		must(t, id.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), port)))
		says(id.Listen(1), syscall.EADDRINUSE, fmt.Sprintf("listen: TCP port %d: must be a free one; another program has it "+
			"(ss -ltnp names it) (EADDRINUSE) [TCP ID 0.0.0.0:%[1]d]", port))
	})
	t.Run("zone", func(t *testing.T) {
		id := create(t)
		err := id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("[fe80::1]:7471"), time.Second)
		const want = "fe80::1: must have a zone, as in fe80::1%eth0"
		if !errors.Is(err, syscall.EINVAL) || strings.Count(err.Error(), want) != 1 {
			t.Error(err)
		}
	})
	t.Run("no QP", func(t *testing.T) {
		l, _ := listen(t, h)
		id, _ := resolved(t, h, l.LocalAddr())
		defer id.Close()
		err := id.Connect(t.Context(), nil)
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "must have a QP number, as the ID has no QP") {
			t.Error(err)
		}
	})
	t.Run("UD", func(t *testing.T) {
		l, _ := listen(t, h)
		id, _ := resolved(t, h, l.LocalAddr())
		defer id.Close()
		err := id.CreateQP(nil, &verbs.QPInitAttr{Type: verbs.QPTypeUD, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1}})
		says(err, syscall.EINVAL, fmt.Sprintf("create_qp: QP type UD: must be RC (EINVAL) [TCP ID %v to %v]",
			id.LocalAddr(), l.LocalAddr()))
	})
	t.Run("CRC", func(t *testing.T) {
		t.Setenv("VERBENA_IWARP_CRC", "yes")
		id := create(t)
		must(t, id.BindAddr(netip.AddrPortFrom(loopback, 0)))
		says(id.Listen(1), syscall.EINVAL, fmt.Sprintf(`listen: VERBENA_IWARP_CRC="yes": must be 0 or 1 (EINVAL) [TCP ID %v]`,
			id.LocalAddr()))
	})
	t.Run("transport", func(t *testing.T) {
		t.Setenv("VERBENA_TRANSPORT", "tcp")
		id := create(t)
		err := id.BindAddr(netip.AddrPortFrom(loopback, 0))
		const want = `VERBENA_TRANSPORT="tcp": must be roce or iwarp`
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Error(err)
		}
	})
}
