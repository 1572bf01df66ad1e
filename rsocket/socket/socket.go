package socket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Domain is an address family, with Linux's values on every system.
type Domain int

// The families (PF_INET, PF_INET6).
const (
	Inet  Domain = 2
	Inet6 Domain = 10
)

// Type is a socket type, with Linux's values on every system.
type Type int

// The kinds, and flags that may be added to them.
const (
	SockStream   Type = 1
	SockDgram    Type = 2
	SockNonblock Type = 0o4000    // the socket does not block
	SockCloexec  Type = 0o2000000 // no effect: there is no descriptor
)

// The protocols of New; 0 is that of the kind.
const (
	ProtoTCP = 6
	ProtoUDP = 17
)

// Socket is a socket with the calls of C. All methods are safe for concurrent use.
//
// Errors have the errno that the C function sets. A call that would wait returns EAGAIN if the socket does not block.
// Of every call: EBADF after Close. Of calls that send or receive: ENOTCONN on a stream that was never connected;
// ECONNRESET if the connection has failed, EIO if its device was removed, ETIMEDOUT if the peer did not answer, EPROTO
// if it has violated the protocol.
type Socket struct {
	domain Domain
	typ    Type

	nonblock atomic.Bool

	hub *sock.Hub
	dg  *sock.Datagram // nil for a stream

	mu sync.Mutex
	// +checklocks:mu
	id *rdmacm.ID // of a stream that is neither connected nor listening
	// +checklocks:mu
	o sockOptions
	// +checklocks:mu
	st *sock.Stream // nil before Connect
	// +checklocks:mu
	l *sock.Acceptor // nil before Listen
	// +checklocks:mu
	bound bool
	// +checklocks:mu
	closed bool
}

// New makes a socket on the default host (rsocket). ENOTSUP for another domain, type or protocol than the constants
// of this package.
func New(domain Domain, typ Type, protocol int) (*Socket, error) {
	return NewOn(nil, domain, typ, protocol)
}

// NewOn is New on another host; nil is the default one.
func NewOn(host *rdmacm.Host, domain Domain, typ Type, protocol int) (*Socket, error) {
	const op = "rsocket"
	kind := typ &^ (SockNonblock | SockCloexec)
	switch {
	case domain != Inet && domain != Inet6:
		return nil, sock.Fail(op, syscall.ENOTSUP, "domain %d: must be PF_INET 2 or PF_INET6 10", domain)
	case kind == SockStream && (protocol == 0 || protocol == ProtoTCP), kind == SockDgram &&
		(protocol == 0 || protocol == ProtoUDP):
	default:
		return nil, sock.Fail(op, syscall.ENOTSUP,
			"type %d with protocol %d: must be SOCK_STREAM 1 with TCP 6, or SOCK_DGRAM 2 with UDP 17; 0 is either protocol",
			kind, protocol)
	}
	s := &Socket{domain: domain, typ: kind, o: defaultSockOptions()}
	s.nonblock.Store(typ&SockNonblock != 0)
	b := sock.JoinHub(sock.HostOf(host))
	s.hub = b
	if kind == SockDgram {
		s.dg = sock.NewDatagram(b, domain == Inet, s.o.Options)
		return s, nil
	}
	var err error
	if s.id, err = b.Host.CreateID(b.Channel, rdmacm.PSTCP, nil); err != nil {
		b.Leave()
		return nil, err
	}
	return s, nil
}

var errBadSocket = syscall.EBADF

// Bind gives the socket its local address (rbind): an address of a device or a wildcard, and a port, or 0 for a free
// port. Errors are those of rdmacm.ID.BindAddr; for a datagram socket those of the system's UDP sockets. EINVAL for an
// address of another family, or a socket that is bound, connected or listens.
func (s *Socket) Bind(addr netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errBadSocket
	case !s.takes(addr):
		return sock.Fail("rbind", syscall.EINVAL, "%v: must be of the family of the socket", addr)
	case s.dg != nil:
		return s.dg.Bind(addr)
	case s.id == nil || s.l != nil || s.st != nil:
		return sock.Fail("rbind", syscall.EINVAL, "the socket is connected or listens")
	}
	if err := s.id.BindAddr(addr); err != nil {
		return err
	}
	s.bound = true
	return nil
}

// takes reports whether an address can be one of the socket. An IPv6 stream has IPv4 addresses too, as one of TCP
// does, unless IPV6_V6ONLY is set. mu is held.
//
// +checklocks:s.mu
func (s *Socket) takes(a netip.AddrPort) bool {
	if a.Addr().Unmap().Is4() {
		return s.domain == Inet || s.dg == nil && !s.o.v6only
	}
	return s.domain == Inet6
}

// Listen starts to accept connections (rlisten). backlog limits those that wait for Accept; 0 and values above 1024
// stand for 1024. A second call has no effect.
//
// As with TCP, and unlike in C, a connection is complete before Accept is called, with the sizes that the listening
// socket had when the request arrived. Set options before Listen.
func (s *Socket) Listen(backlog int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errBadSocket
	case s.l != nil:
		return nil
	case s.dg != nil:
		return sock.Fail("rlisten", syscall.EOPNOTSUPP, "a datagram socket does not listen")
	case s.st != nil:
		return sock.Fail("rlisten", syscall.EINVAL, "the socket is connected")
	}
	if !s.bound { // to ask the ID would fix its port
		if err := s.id.BindAddr(s.unspecified()); err != nil {
			return err
		}
		s.bound = true
	}
	ch := sock.NewChannel(s.hub.Host)
	err := s.id.Migrate(ch)
	if err == nil {
		s.l, err = sock.Listen(s.hub, s.id, ch, backlog, s.optionsOfAccepted)
	}
	if err != nil {
		_ = s.id.Migrate(s.hub.Channel)
		_ = ch.Close()
		return err
	}
	return nil
}

// optionsOfAccepted returns the sizes of a connection that a client asks for now.
func (s *Socket) optionsOfAccepted() sock.Options {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Options
}

// Accept waits for a connection and returns its socket and the peer's address (raccept). The socket has the sizes, the
// options and the O_NONBLOCK of the listening one. EBADF if the socket does not listen, ENODEV when its device is
// removed.
func (s *Socket) Accept() (*Socket, netip.AddrPort, error) {
	s.mu.Lock()
	l := s.l
	s.mu.Unlock()
	if l == nil {
		return nil, netip.AddrPort{}, errBadSocket
	}
	st, err := l.Accept(s.nonblock.Load())
	if err != nil {
		return nil, netip.AddrPort{}, closedIsBad(err)
	}
	s.mu.Lock()
	o := s.o
	s.mu.Unlock()
	n := &Socket{domain: s.domain, typ: s.typ, hub: st.Hub(), st: st, o: o}
	n.nonblock.Store(s.nonblock.Load())
	n.mu.Lock()
	n.applyKeepalive()
	n.mu.Unlock()
	return n, st.PeerAddr(), nil
}

// closedIsBad replaces the error of a closed socket by that of C for a closed descriptor.
func closedIsBad(err error) error {
	if err == net.ErrClosed {
		return errBadSocket
	}
	return err
}

// Connect connects to a listening socket, or sets the destination of a datagram socket (rconnect). A socket that
// does not block returns EINPROGRESS: PollOut or PollErr ends the attempt, SoError has its result. ECONNREFUSED:
// there is no listener, or it has another protocol; ETIMEDOUT: no answer; ENOTSUP: the peer has another version;
// EHOSTUNREACH: no host of the link has the address; ENODEV: there is no suitable device, or it is removed meanwhile;
// EINVAL: the socket listens, or the address is of another family. On a connected socket it has no effect; on one whose
// connection has ended it returns ENOTCONN. The zero AddrPort stands for an address of AF_UNSPEC: a datagram socket has
// no peer any more.
func (s *Socket) Connect(to netip.AddrPort) error {
	s.mu.Lock()
	if err := s.startConnect(to); err != nil || s.dg != nil {
		s.mu.Unlock()
		return err
	}
	st := s.st
	s.mu.Unlock()
	if s.nonblock.Load() {
		if st.IsConnecting() {
			return syscall.EINPROGRESS
		}
	}
	return closedIsBad(st.AwaitConnection(context.Background()))
}

// startConnect is Connect up to the wait. mu is held.
//
// +checklocks:s.mu
func (s *Socket) startConnect(to netip.AddrPort) error {
	const op = "rconnect"
	switch {
	case s.closed:
		return errBadSocket
	case s.dg != nil && !to.Addr().IsValid():
		return s.dg.Disconnect()
	case s.dg != nil:
		return s.dg.Connect(to)
	case s.l != nil:
		return sock.Fail(op, syscall.EINVAL, "the socket listens")
	case !to.Addr().IsValid() || !s.takes(to):
		return sock.Fail(op, syscall.EINVAL, "%v: must be of the family of the socket", to)
	case s.st != nil:
		if s.st.IsOver() {
			return sock.Fail(op, syscall.ENOTCONN, "the socket was connected, or could not be")
		}
		return nil
	}
	s.st = sock.NewStream(s.hub, s.o.Options)
	s.st.SetRoute(s.o.route)
	id := s.id
	s.id = nil
	err := s.st.Connect(id, to)
	s.applyKeepalive()
	return err
}

// connectAgain replaces a stream that could not connect. The new ID has the local address of Bind. mu is held.
//
// +checklocks:s.mu
func (s *Socket) connectAgain() error {
	failed := s.st
	if failed == nil || failed.IsMade() || !failed.IsOver() {
		return sock.Fail("rsetsockopt", syscall.EINVAL, "RDMAAgain is for a socket that could not connect")
	}
	id, err := s.hub.Host.CreateID(s.hub.Channel, rdmacm.PSTCP, nil)
	if err != nil {
		return err
	}
	local := failed.LocalAddr()
	s.hub.Join() // for the new ID: the stream leaves
	failed.Close(0)
	s.st, s.id = nil, id
	err = errors.Join(id.SetReuseAddr(s.o.reuse), id.SetAFOnly(s.o.v6only), id.SetTOS(s.o.tos))
	if err == nil && s.bound {
		err = id.BindAddr(local)
	}
	return err
}

// stream returns the socket's connection; ENOTCONN without one.
func (s *Socket) stream() (*sock.Stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, errBadSocket
	case s.st == nil:
		return nil, syscall.ENOTCONN
	}
	return s.st, nil
}

// How is the direction that Shutdown ends.
type How int

// What Shutdown ends (SHUT_RD, SHUT_WR, SHUT_RDWR).
const (
	ShutRead  How = 0
	ShutWrite How = 1
	ShutBoth  How = 2
)

// Shutdown ends receiving, sending or both (rshutdown), and waits at most two seconds until sent data is
// acknowledged, even if the socket does not block. After both directions have ended the connection is over. It has no
// effect on a datagram socket. A listening socket accepts no more after receiving has ended: calls of Accept return
// EBADF. ENOTCONN without a connection, EINVAL for another value of how.
func (s *Socket) Shutdown(how How) error {
	if how < ShutRead || how > ShutBoth {
		return sock.Fail("rshutdown", syscall.EINVAL, "how %d: must be 0 to 2", how)
	}
	if s.dg != nil {
		if s.dg.IsClosed() {
			return errBadSocket
		}
		return nil
	}
	s.mu.Lock()
	l := s.l
	s.mu.Unlock()
	if l != nil && how != ShutWrite {
		_ = l.Close()
		return nil
	}
	st, err := s.stream()
	if err != nil {
		return err
	}
	return closedIsBad(st.Shutdown(how != ShutWrite, how != ShutRead))
}

// Close ends the connection and destroys the socket (rclose). It waits at most two seconds until the peer has
// acknowledged the sent data; delivery continues in the background for at most 30 seconds. EBADF for a closed
// socket.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errBadSocket
	}
	s.closed = true
	id, l, st := s.id, s.l, s.st
	s.mu.Unlock() // the rest may wait for the peer
	switch {
	case s.dg != nil:
		s.dg.Close()
	case l != nil:
		_ = l.Close()
	case st != nil:
		st.Close(sock.MaxLinger)
	default:
		_ = id.Close()
		s.hub.Leave()
	}
	return nil
}

// PeerName returns the peer's address (rgetpeername); ENOTCONN without one, and before the connection is made.
func (s *Socket) PeerName() (netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return netip.AddrPort{}, errBadSocket
	case s.dg != nil && s.dg.Peer().IsValid():
		return s.dg.Peer(), nil
	case s.st != nil && s.st.IsMade():
		return s.st.PeerAddr(), nil
	}
	return netip.AddrPort{}, syscall.ENOTCONN
}

// SockName returns the local address (rgetsockname); the unspecified one before there is one.
func (s *Socket) SockName() (netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var a netip.AddrPort
	switch {
	case s.closed:
		return a, errBadSocket
	case s.dg != nil:
		return s.dg.Local(), nil
	case s.l != nil:
		a = s.l.Addr()
	case s.st != nil:
		a = s.st.LocalAddr()
	default:
		a = s.id.LocalAddr()
	}
	if !a.IsValid() {
		return s.unspecified(), nil
	}
	return a, nil
}

// unspecified returns the unspecified address of the socket's family, without a port.
func (s *Socket) unspecified() netip.AddrPort {
	if s.domain == Inet6 {
		return netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
}
