package iwtcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/iwarp"
	wire "github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// failure is an error with its errno.
type failure struct {
	text  string
	errno syscall.Errno
}

func (f *failure) Error() string { return f.text }
func (f *failure) Unwrap() error { return f.errno }

// Refused is the error of Dial if the peer has rejected the connection.
type Refused struct{ Private []byte }

func (*Refused) Error() string { return "its program has rejected the connection: look at its output" }

// Unwrap returns the errno that kernels report with such a rejection.
func (*Refused) Unwrap() error { return syscall.ECONNRESET }

var (
	errSilent = &failure{fmt.Sprintf("the peer has not answered the request of MPA in %v: its program does not take the "+
		"request, or does not use iWARP", iwarp.ReplyTimeout), syscall.ETIMEDOUT}
	errLost = &failure{"the peer has closed the connection instead of an answer to the request of MPA: its program has " +
		"ended, has too many requests, or does not use iWARP: look at its output", syscall.ECONNRESET}
	errRequest = &failure{"the request was answered or has ended", syscall.EINVAL}
)

// badReply is the error for a reply of MPA that the start-up refuses.
func badReply(s *iwarp.Setup) error {
	text := "the peer's answer is not one of MPA: its program does not use iWARP: compare address and port"
	switch p := s.Peer(); {
	case s.Code() == wire.MPADepths:
		text = fmt.Sprintf("the peer wants %d READs at a time: must be at most responder_resources of this side", p.ORD)
	case s.Code() == wire.MPANoRTR:
		text = "the peer takes no first message of peer-to-peer mode: VERBENA_IWARP_P2P=0 leaves the mode out"
	case p.Markers:
		text = "the peer asks for markers of MPA, which do not exist here: it must switch them off"
	case p.Rev != 0:
		text = fmt.Sprintf("the peer's answer is of revision %d of MPA: must be that of the request or less", p.Rev)
	}
	return &failure{text, syscall.EPROTO}
}

// noConnection is the error if TCP makes no connection.
func noConnection(err error, local, remote netip.AddrPort) error {
	var errno syscall.Errno
	switch found := errors.As(err, &errno); {
	case !found && errors.Is(err, os.ErrDeadlineExceeded):
		errno = syscall.ETIMEDOUT
	case !found:
		return err
	}
	text := errno.Error()
	switch errno {
	case syscall.ECONNREFUSED:
		text = fmt.Sprintf("no program listens on its TCP port %d: start the server first, and compare address, port and "+
			"VERBENA_TRANSPORT", remote.Port())
	case syscall.ETIMEDOUT:
		text = fmt.Sprintf("no answer from %v: compare the address; a firewall may drop TCP port %d", remote.Addr(),
			remote.Port())
	case syscall.EADDRINUSE, syscall.EADDRNOTAVAIL:
		text = fmt.Sprintf("TCP port %d of this side is in use for this peer: choose another one, or 0", local.Port())
		if local.Port() == 0 {
			text = "all ephemeral TCP ports are in use for this peer: end connections, or widen the range " +
				"(sysctl net.ipv4.ip_local_port_range)"
		}
	case syscall.EMFILE:
		text = "the process has no descriptor left: raise its limit (ulimit -n)"
	}
	return &failure{text, errno}
}

// noListener is the error if TCP does not listen.
func noListener(err error, at netip.AddrPort) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return &failure{fmt.Sprintf("TCP port %d: must be a free one; another program has it (ss -ltnp names it)",
			at.Port()), syscall.EADDRINUSE}
	}
	return err
}
