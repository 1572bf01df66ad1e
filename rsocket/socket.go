package rsocket

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// Domain is a family of addresses, with Linux's values on every system.
type Domain int

// The families (PF_INET, PF_INET6).
const (
	Inet  Domain = 2
	Inet6 Domain = 10
)

// Type is a kind of socket, with Linux's values on every system.
type Type int

// The kinds, and flags that may be added to them.
const (
	SockStream   Type = 1
	SockDgram    Type = 2
	SockNonblock Type = 0o4000    // the socket does not block
	SockCloexec  Type = 0o2000000 // without meaning: there is no descriptor
)

// The protocols of NewSocket; 0 is that of the kind.
const (
	ProtoTCP = 6
	ProtoUDP = 17
)

// Socket is a socket with the calls of C, for programs that want exactly these: flags, options, and Poll beside others. Dial, Listen
// and ListenPacket give Go's own. All methods are safe for concurrent use.
//
// Errors have the errno that the C function sets. A call that would wait returns EAGAIN if the socket does not block.
type Socket struct {
	domain Domain
	typ    Type

	nonblock atomic.Bool

	mu     sync.Mutex
	hub    *hub
	id     *rdmacm.ID // of a stream that is neither connected nor listening
	o      sockOptions
	st     *stream
	l      *acceptor
	dg     *datagram
	bound  bool
	closed bool
}

// NewSocket makes a socket on the default host (rsocket). ENOTSUP for another domain, type or protocol than those here.
func NewSocket(domain Domain, typ Type, protocol int) (*Socket, error) {
	return NewSocketOn(nil, domain, typ, protocol)
}

// NewSocketOn is NewSocket on another host; nil is the default one.
func NewSocketOn(host *rdmacm.Host, domain Domain, typ Type, protocol int) (*Socket, error) {
	const op = "rsocket"
	kind := typ &^ (SockNonblock | SockCloexec)
	switch {
	case domain != Inet && domain != Inet6:
		return nil, fail(op, syscall.ENOTSUP, "domain %d; INET 2 and INET6 10 are supported", domain)
	case kind == SockStream && (protocol == 0 || protocol == ProtoTCP), kind == SockDgram && (protocol == 0 || protocol == ProtoUDP):
	default:
		return nil, fail(op, syscall.ENOTSUP, "type %d with protocol %d; STREAM 1 with TCP 6 and DGRAM 2 with UDP 17 are supported", kind, protocol)
	}
	s := &Socket{domain: domain, typ: kind, o: defaultSockOptions()}
	s.nonblock.Store(typ&SockNonblock != 0)
	b, err := joinHub(hostOf(host))
	if err != nil {
		return nil, err
	}
	s.hub = b
	if kind == SockDgram {
		if s.dg, err = newDatagram(b, domain, s.o.Options); err != nil {
			b.leave()
			return nil, err
		}
		return s, nil
	}
	if s.id, err = b.host.CreateID(b.ch, rdmacm.PSTCP, nil); err != nil {
		b.leave()
		return nil, err
	}
	return s, nil
}

var errBadSocket = syscall.EBADF

// Bind gives the socket its local address (rbind): an address of a device or a wildcard, and a port, or 0 for a free one. Errors are
// those of rdmacm.ID.BindAddr, of a datagram socket those of the system's UDP sockets.
func (s *Socket) Bind(addr netip.AddrPort) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errBadSocket
	case s.family(addr) != s.domain:
		return fail("rbind", syscall.EINVAL, "%v is of another family than the socket", addr)
	case s.dg != nil:
		return s.dg.bind(addr)
	case s.id == nil || s.l != nil || s.st != nil:
		return fail("rbind", syscall.EINVAL, "the socket is connected or listens")
	}
	if err := s.id.BindAddr(addr); err != nil {
		return err
	}
	s.bound = true
	return nil
}

func (s *Socket) family(a netip.AddrPort) Domain {
	if a.Addr().Unmap().Is4() {
		return Inet
	}
	return Inet6
}

// Listen begins to take connections (rlisten). backlog bounds those that wait for Accept; 0, and more than 1024, stand for 1024. A
// second call changes nothing.
//
// As with TCP, and other than in C, a connection is complete before Accept is called: it has the sizes that the listening socket had when the
// peer asked for it. So set options before Listen.
func (s *Socket) Listen(backlog int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return errBadSocket
	case s.l != nil:
		return nil
	case s.dg != nil:
		return fail("rlisten", syscall.EOPNOTSUPP, "a datagram socket does not listen")
	case s.st != nil:
		return fail("rlisten", syscall.EINVAL, "the socket is connected")
	}
	if !s.bound { // to ask the ID would fix its port
		any := netip.IPv4Unspecified()
		if s.domain == Inet6 {
			any = netip.IPv6Unspecified()
		}
		if err := s.id.BindAddr(netip.AddrPortFrom(any, 0)); err != nil {
			return err
		}
		s.bound = true
	}
	ch, err := s.hub.host.CreateEventChannel()
	if err != nil {
		return err
	}
	if err = s.id.Migrate(ch); err == nil {
		s.l, err = listen(s.hub, s.id, ch, backlog, func() Options {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.o.Options
		})
	}
	if err != nil {
		_ = s.id.Migrate(s.hub.ch)
		_ = ch.Close()
		return err
	}
	return nil
}

// Accept waits for a connection and returns its socket and the peer's address (raccept). The socket has the sizes and flags of
// the listening one. EBADF if the socket does not listen.
func (s *Socket) Accept() (*Socket, netip.AddrPort, error) {
	s.mu.Lock()
	l := s.l
	s.mu.Unlock()
	if l == nil {
		return nil, netip.AddrPort{}, errBadSocket
	}
	st, err := l.accept(s.nonblock.Load())
	if err != nil {
		return nil, netip.AddrPort{}, closedIsBad(err)
	}
	s.mu.Lock()
	o := s.o
	s.mu.Unlock()
	n := &Socket{domain: s.domain, typ: s.typ, hub: st.hub, st: st, o: o}
	n.nonblock.Store(s.nonblock.Load())
	n.applyKeepalive()
	return n, st.peerAddr(), nil
}

// closedIsBad is what C says of a descriptor that is closed.
func closedIsBad(err error) error {
	if err == net.ErrClosed {
		return errBadSocket
	}
	return err
}

// Connect connects to a listening socket, or gives a datagram socket its destination (rconnect). A socket that does not block returns
// EINPROGRESS: Poll tells by PollOut or PollErr when it is done, SO_ERROR how. ECONNREFUSED: nobody listens, or somebody who does not
// speak the protocol; ETIMEDOUT; ENOTSUP: a peer of another version. Nothing happens to a connected socket; one that has failed or
// is disconnected says ENOTCONN.
func (s *Socket) Connect(to netip.AddrPort) error {
	s.mu.Lock()
	if err := s.startConnect(to); err != nil || s.dg != nil {
		s.mu.Unlock()
		return err
	}
	st := s.st
	s.mu.Unlock()
	if s.nonblock.Load() {
		if st.isConnecting() {
			return syscall.EINPROGRESS
		}
	}
	return st.awaitConnection(context.Background())
}

func (s *Socket) startConnect(to netip.AddrPort) error {
	const op = "rconnect"
	switch {
	case s.closed:
		return errBadSocket
	case s.dg != nil:
		return s.dg.connect(to)
	case s.l != nil:
		return fail(op, syscall.EINVAL, "the socket listens")
	case s.family(to) != s.domain:
		return fail(op, syscall.EINVAL, "%v is of another family than the socket", to)
	case s.st != nil:
		if s.st.isOver() {
			return fail(op, syscall.ENOTCONN, "the socket was connected, or could not be")
		}
		return nil
	}
	s.st = newStream(s.hub, s.o.Options)
	s.st.route = s.o.route
	id := s.id
	s.id = nil
	err := s.st.connect(id, to)
	s.applyKeepalive()
	return err
}

// stream is the socket's connection, ENOTCONN without one.
func (s *Socket) stream() (*stream, error) {
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

func (s *Socket) datagram() *datagram {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dg
}

func (s *Socket) patience(flags Flags) patience {
	return patience{nonblock: s.nonblock.Load() || flags&MsgDontWait != 0}
}

// Recv reads what has come (rrecv): 1 byte at least and len(b) at most, or 0 at the end of the stream; all of b with
// MsgWaitAll. Of a datagram it reads one message, and what does not fit is lost.
func (s *Socket) Recv(b []byte, flags Flags) (int, error) {
	if dg := s.datagram(); dg != nil {
		n, _, err := dg.recvFrom(b, flags, s.patience(flags))
		return n, closedIsBad(err)
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.recv(b, flags, s.patience(flags))
	if n > 0 {
		err = nil
	}
	return n, closedIsBad(err)
}

// RecvFrom is Recv that also tells where the data is from (rrecvfrom); of a stream, the peer.
func (s *Socket) RecvFrom(b []byte, flags Flags) (int, netip.AddrPort, error) {
	if dg := s.datagram(); dg != nil {
		n, from, err := dg.recvFrom(b, flags, s.patience(flags))
		return n, from, closedIsBad(err)
	}
	n, err := s.Recv(b, flags)
	if err != nil {
		return n, netip.AddrPort{}, err
	}
	from, err := s.PeerName()
	return n, from, err
}

// Send sends b (rsend): all of it, or as much as there is room for if it must not wait. To a datagram's destination of Connect
// it is one message. ECONNRESET after the peer has disconnected or this side has ended writing.
func (s *Socket) Send(b []byte, flags Flags) (int, error) {
	if dg := s.datagram(); dg != nil {
		n, err := dg.send(b, s.patience(flags))
		return n, closedIsBad(err)
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.send(b, s.patience(flags))
	return n, sendError(n, err)
}

// sendError is the error of a call that has sent n bytes before.
func sendError(n int, err error) error {
	switch {
	case n > 0:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return syscall.ECONNRESET
	}
	return closedIsBad(err)
}

// SendTo sends a message to an address (rsendto). EISCONN for a stream, unless there is no address (the zero AddrPort); EMSGSIZE for more
// than 2040 bytes by IPv4 and 2024 by IPv6.
func (s *Socket) SendTo(b []byte, flags Flags, to netip.AddrPort) (int, error) {
	switch dg := s.datagram(); {
	case !to.IsValid():
		return s.Send(b, flags)
	case dg == nil:
		return 0, syscall.EISCONN
	default:
		n, err := dg.sendTo(b, to, s.patience(flags))
		return n, closedIsBad(err)
	}
}

// Read is Recv without flags (rread).
func (s *Socket) Read(b []byte) (int, error) { return s.Recv(b, 0) }

// Write is Send without flags (rwrite).
func (s *Socket) Write(b []byte) (int, error) { return s.Send(b, 0) }

// Msg is what SendMsg sends and RecvMsg receives (struct msghdr).
type Msg struct {
	Name    netip.AddrPort // where to, or from
	IOV     [][]byte
	Control []byte // ENOTSUP
}

// SendMsg sends what several buffers hold (rsendmsg), and nothing of another call in between.
func (s *Socket) SendMsg(m *Msg, flags Flags) (int, error) {
	if len(m.Control) > 0 {
		return 0, fail("rsendmsg", syscall.ENOTSUP, "there is no ancillary data")
	}
	if s.datagram() != nil {
		var b []byte
		for _, v := range m.IOV {
			b = append(b, v...)
		}
		return s.SendTo(b, flags, m.Name)
	}
	if m.Name.IsValid() {
		return 0, syscall.EISCONN
	}
	st, err := s.stream()
	if err != nil {
		return 0, err
	}
	n, err := st.sendAll(m.IOV, s.patience(flags))
	return n, sendError(n, err)
}

// RecvMsg receives into the first of the buffers that is not empty, which is a short read if there are more (rrecvmsg).
func (s *Socket) RecvMsg(m *Msg, flags Flags) (n int, err error) {
	if len(m.Control) > 0 {
		return 0, fail("rrecvmsg", syscall.ENOTSUP, "there is no ancillary data")
	}
	for _, v := range m.IOV {
		if len(v) > 0 {
			n, m.Name, err = s.RecvFrom(v, flags)
			break
		}
	}
	return n, err
}

// Writev sends what several buffers hold (rwritev).
func (s *Socket) Writev(iov [][]byte) (int, error) { return s.SendMsg(&Msg{IOV: iov}, 0) }

// Readv receives into the first of the buffers that is not empty (rreadv).
func (s *Socket) Readv(iov [][]byte) (int, error) { return s.RecvMsg(&Msg{IOV: iov}, 0) }

// How says what Shutdown ends.
type How int

// What Shutdown ends (SHUT_RD, SHUT_WR, SHUT_RDWR).
const (
	ShutRead  How = 0
	ShutWrite How = 1
	ShutBoth  How = 2
)

// Shutdown ends receiving, sending or both (rshutdown), and waits until what was sent is acknowledged, also if the socket does not
// block. After both, or the second half, the connection is over. ENOTCONN without a connection.
func (s *Socket) Shutdown(how How) error {
	if how < ShutRead || how > ShutBoth {
		return fail("rshutdown", syscall.EINVAL, "how is %d; 0, 1 and 2 are possible", how)
	}
	if dg := s.datagram(); dg != nil {
		return nil
	}
	st, err := s.stream()
	if err != nil {
		return err
	}
	return closedIsBad(st.shutdown(how != ShutWrite, how != ShutRead))
}

// Close ends the connection, as Conn.Close does, and everything else (rclose). EBADF for a socket that is closed.
func (s *Socket) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errBadSocket
	}
	s.closed = true
	s.mu.Unlock() // the rest may wait for the peer
	switch {
	case s.dg != nil:
		s.dg.close()
	case s.l != nil:
		_ = s.l.close()
	case s.st != nil:
		s.st.close(lingerInClose)
	default:
		_ = s.id.Close()
		s.hub.leave()
	}
	return nil
}

// PeerName is the peer's address (rgetpeername); ENOTCONN without one.
func (s *Socket) PeerName() (netip.AddrPort, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return netip.AddrPort{}, errBadSocket
	case s.dg != nil && s.dg.peer().IsValid():
		return s.dg.peer(), nil
	case s.st != nil:
		return s.st.peerAddr(), nil
	}
	return netip.AddrPort{}, syscall.ENOTCONN
}

// SockName is the local address (rgetsockname); the unspecified one while there is none.
func (s *Socket) SockName() (a netip.AddrPort, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return a, errBadSocket
	case s.dg != nil:
		return s.dg.local(), nil
	case s.l != nil:
		a = s.l.addr()
	case s.st != nil:
		a = s.st.localAddr()
	default:
		a = s.id.LocalAddr()
	}
	if !a.IsValid() {
		a = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		if s.domain == Inet6 {
			a = netip.AddrPortFrom(netip.IPv6Unspecified(), 0)
		}
	}
	return a, nil
}

// Commands of Fcntl, with Linux's values on every system.
const (
	FGetFD = 1
	FSetFD = 2
	FGetFL = 3
	FSetFL = 4
)

// ONonblock is the flag of FSetFL that makes a socket not block (O_NONBLOCK).
const ONonblock = 0o4000

// Fcntl reads and changes flags (rfcntl). ENOTSUP for other commands than those here.
func (s *Socket) Fcntl(cmd, arg int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return -1, errBadSocket
	}
	switch cmd {
	case FGetFL:
		if s.nonblock.Load() {
			return ONonblock, nil
		}
	case FSetFL:
		s.nonblock.Store(arg&ONonblock != 0)
	case FGetFD:
		return s.o.fdFlags, nil
	case FSetFD:
		s.o.fdFlags = arg
	default:
		return -1, fail("rfcntl", syscall.ENOTSUP, "command %d", cmd)
	}
	return 0, nil
}

// SetNonblock makes the socket not block, or block again (fcntl with O_NONBLOCK).
func (s *Socket) SetNonblock(on bool) { s.nonblock.Store(on) }
