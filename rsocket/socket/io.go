package socket

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

func (s *Socket) waitMode(flags Flags) sock.WaitMode {
	return sock.WaitMode{Nonblock: s.nonblock.Load() || flags&MsgDontWait != 0}
}

// Recv reads received data (rrecv): at least 1 byte and at most len(b), or 0 at the end of the stream; all of b with
// MsgWaitAll. A datagram socket reads one message; the part that does not fit is lost.
func (s *Socket) Recv(b []byte, flags Flags) (int, error) {
	if dg := s.dg; dg != nil {
		n, _, err := dg.RecvFrom(b, flags.recv(), s.waitMode(flags))
		return n, closedIsBad(err)
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.Recv(b, flags.recv(), s.waitMode(flags))
	if n > 0 {
		err = nil
	}
	return n, closedIsBad(err)
}

// RecvFrom is Recv with the source (rrecvfrom); for a stream, the peer.
func (s *Socket) RecvFrom(b []byte, flags Flags) (int, netip.AddrPort, error) {
	if dg := s.dg; dg != nil {
		n, from, err := dg.RecvFrom(b, flags.recv(), s.waitMode(flags))
		return n, from, closedIsBad(err)
	}
	n, err := s.Recv(b, flags)
	if err != nil {
		return n, netip.AddrPort{}, err
	}
	from, err := s.PeerName()
	return n, from, err
}

// Send sends b (rsend): all of it, or the part for which there is room if it must not wait. On a datagram socket it
// sends one message to the destination of Connect; EDESTADDRREQ without one. ECONNRESET after the peer has disconnected
// or Shutdown has ended writing.
func (s *Socket) Send(b []byte, flags Flags) (int, error) {
	if dg := s.dg; dg != nil {
		n, err := dg.Send(b, s.waitMode(flags))
		return n, closedIsBad(err)
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.Send(b, s.waitMode(flags))
	return n, sendError(n, err)
}

// sendError returns the error of a call that has sent n bytes before it.
func sendError(n int, err error) error {
	switch {
	case n > 0:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return syscall.ECONNRESET
	}
	return closedIsBad(err)
}

// SendTo sends a message to an address (rsendto). A stream returns EISCONN unless the address is the zero AddrPort.
// EMSGSIZE for more than 2040 bytes by IPv4 or 2024 by IPv6. EINVAL for an address of another family or with port 0.
func (s *Socket) SendTo(b []byte, flags Flags, to netip.AddrPort) (int, error) {
	switch dg := s.dg; {
	case !to.IsValid():
		return s.Send(b, flags)
	case dg == nil:
		return 0, syscall.EISCONN
	default:
		n, err := dg.SendTo(b, to, s.waitMode(flags))
		return n, closedIsBad(err)
	}
}

// Read is Recv without flags (rread).
func (s *Socket) Read(b []byte) (int, error) { return s.Recv(b, 0) }

// Write is Send without flags (rwrite).
func (s *Socket) Write(b []byte) (int, error) { return s.Send(b, 0) }
