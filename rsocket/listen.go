package rsocket

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// ListenConfig makes listeners. The zero value is ready for use.
type ListenConfig struct {
	Options              // of the connections
	Host    *rdmacm.Host // nil for the default host
	Backlog int          // limit of connections that wait for Accept; 0 and values above 1024 stand for 1024
	V6Only  bool         // a listener on all IPv6 addresses refuses IPv4 connections (IPV6_V6ONLY)
	// KeepAlive is the interval of checks of an idle peer; 0 stands for 15 s, a value below 0 turns them off.
	KeepAlive time.Duration
}

// Listener is a net.Listener, which ListenConfig.Listen and Listen return. All methods are safe for concurrent use.
type Listener struct {
	a         *sock.Acceptor
	network   string
	addr      net.Addr
	keepAlive time.Duration
}

var _ net.Listener = (*Listener)(nil)

// Listen listens at a local address (rsocket, rbind, rlisten): network is tcp, tcp4 or tcp6. An empty host stands
// for all addresses, port 0 for a free port. The errors are those of ListenConfig.Listen.
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(context.Background(), network, address)
}

// Listen listens at a local address, as the function Listen. ctx bounds only the resolution of the address. The error
// is a *net.OpError with the errors of rdmacm.ID.BindAddr, SetPathMTU and Listen, or net.UnknownNetworkError.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, opError("listen", network, nil, nil, net.UnknownNetworkError(network))
	}
	address = anyPort(address)
	addrs, err := resolve(ctx, network, address)
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	at := addrs[0]
	if network == "tcp" && strings.HasPrefix(address, ":") {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	l, err := lc.listen(network, at)
	if err != nil {
		return nil, opError("listen", network, nil, net.TCPAddrFromAddrPort(at), err)
	}
	return l, nil
}

func (lc *ListenConfig) listen(network string, at netip.AddrPort) (*Listener, error) {
	b := sock.JoinHub(sock.HostOf(lc.Host))
	ch := sock.NewChannel(b.Host)
	l := &Listener{network: network, keepAlive: keepAlive(lc.KeepAlive)}
	id, err := b.Host.CreateID(ch, rdmacm.PSTCP, nil)
	if err == nil && (lc.V6Only || network == "tcp6") {
		err = id.SetAFOnly(true)
	}
	opts := lc.withDefaults()
	if err == nil {
		err = sock.SetPathMTU(id, opts)
	}
	if err == nil {
		err = id.BindAddr(at)
	}
	if err == nil {
		l.a, err = sock.Listen(b, id, ch, lc.Backlog, func() sock.Options { return opts })
	}
	if err != nil {
		_ = ch.Close()
		b.Leave()
		return nil, err
	}
	l.addr = net.TCPAddrFromAddrPort(l.a.Addr())
	return l, nil
}

// Accept waits for a connection (raccept), a *Conn. The error is net.ErrClosed after Close, os.ErrDeadlineExceeded
// after the deadline, and ENODEV when the listener's device was removed.
func (l *Listener) Accept() (net.Conn, error) {
	st, err := l.a.Accept(false)
	if err != nil {
		return nil, l.fail("accept", err)
	}
	st.SetKeepalive(l.keepAlive)
	return newConn(st, l.network), nil
}

// Close ends listening (rclose), and the connections that wait for Accept. Connections that Accept has returned stay
// open. net.ErrClosed if the listener is closed.
func (l *Listener) Close() error {
	if err := l.a.Close(); err != nil {
		return l.fail("close", err)
	}
	return nil
}

// Addr returns the local address, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline sets the time at which present and future calls of Accept end; the zero time stands for none.
// net.ErrClosed after Close.
func (l *Listener) SetDeadline(t time.Time) error {
	if err := l.a.SetDeadline(t); err != nil {
		return l.fail("set", err)
	}
	return nil
}

func (l *Listener) fail(op string, err error) error {
	return failure(op, l.network, nil, l.addr, err)
}
