package iwtcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// answering is a TCP server that gives each client an answer and closes the connection.
func answering(t *testing.T, answer []byte) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(loopbackAny))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024))
			_, _ = c.Write(answer)
			_ = c.Close()
		}
	}()
	return plain(l.Addr())
}

// The error of a connection that a peer's answer prevents names the reason, and what the user can do.
func TestTextsOfBadAnswers(t *testing.T) {
	reply := func(change func(*wire.Start)) []byte {
		s := wire.Start{Reply: true, Rev: wire.Rev2, Enhanced: true, IRD: 4, ORD: 4, PeerToPeer: true, RTR: wire.RTRWrite}
		change(&s)
		return s.Append(nil)
	}
	for _, c := range []struct {
		answer []byte
		want   string
		errno  syscall.Errno
	}{
		{nil, "has closed the connection instead of an answer", syscall.ECONNRESET},
		{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not use iWARP: compare address and port", syscall.EPROTO},
		{reply(func(s *wire.Start) { s.Reject = true }), "has rejected the connection", syscall.ECONNRESET},
		{reply(func(s *wire.Start) { s.Markers = true }), "asks for markers of MPA", syscall.EPROTO},
		{reply(func(s *wire.Start) { s.Rev, s.Enhanced = 9, false }), "revision 9 of MPA", syscall.EPROTO},
		{reply(func(s *wire.Start) { s.ORD = 9 }), "wants 9 READs at a time", syscall.EPROTO},
		{reply(func(s *wire.Start) { s.RTR = 0 }), "VERBENA_IWARP_P2P=0 leaves the mode out", syscall.EPROTO},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := Dial(ctx, loopbackAny, answering(t, c.answer), iwarp.Options{IRD: 4, ORD: 4, PeerToPeer: true,
			RTR: wire.RTRWrite})
		cancel()
		if !errors.Is(err, c.errno) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want %v, %q", c.answer, err, c.errno, c.want)
		}
	}
}

// So does the error of TCP: no addresses, which the ID has, and no names of system calls.
func TestTextsOfTCP(t *testing.T) {
	local, remote := netip.MustParseAddrPort("192.0.2.1:0"), netip.MustParseAddrPort("192.0.2.2:7471")
	bound := netip.MustParseAddrPort("192.0.2.1:40000")
	for _, c := range []struct {
		errno error
		local netip.AddrPort
		want  string
	}{
		{syscall.ECONNREFUSED, local, "no program listens on its TCP port 7471: start the server first, and compare " +
			"address, port and VERBENA_TRANSPORT"},
		{syscall.ETIMEDOUT, local, "no answer from 192.0.2.2: compare the address; a firewall may drop TCP port 7471"},
		{os.ErrDeadlineExceeded, local, "no answer from 192.0.2.2: compare the address; a firewall may drop TCP port 7471"},
		{syscall.EADDRNOTAVAIL, local, "all ephemeral TCP ports are in use for this peer: end connections, or widen the " +
			"range (sysctl net.ipv4.ip_local_port_range)"},
		{syscall.EADDRINUSE, bound, "TCP port 40000 of this side is in use for this peer: choose another one, or 0"},
		{syscall.EMFILE, local, "the process has no descriptor left: raise its limit (ulimit -n)"},
		{syscall.ENETUNREACH, local, "network is unreachable"},
	} {
		err := noConnection(&net.OpError{Op: "dial", Net: "tcp", Err: c.errno}, c.local, remote)
		if err.Error() != c.want {
			t.Errorf("%v: %q", c.errno, err)
		}
		if _, ok := c.errno.(syscall.Errno); ok && !errors.Is(err, c.errno) {
			t.Errorf("%v: %v has another errno", c.errno, err)
		}
	}
	if err := noListener(syscall.EACCES, bound); err != error(syscall.EACCES) {
		t.Errorf("another reason than a port in use became %v", err)
	}
	at := answering(t, nil)
	_, err := Listen(at, false, func(*Request) {})
	const want = "another program has it (ss -ltnp names it)"
	if !errors.Is(err, syscall.EADDRINUSE) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("listening at a port in use: %v", err)
	}
}
