package rsocket

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// ListenConfig makes listeners. The zero value is ready for use.
type ListenConfig struct {
	Options              // of the connections
	Host    *rdmacm.Host // nil for the default one
	Backlog int          // connections that wait for Accept; 0, and more than 1024, stand for 1024
	V6Only  bool         // a listener on all IPv6 addresses takes no IPv4 connections (IPV6_V6ONLY)
	// KeepAlive is the time after which a silent peer is asked whether it is there; 0 stands for 15 s, less for never.
	KeepAlive time.Duration
}

// Listener is a net.Listener. All methods are safe for concurrent use.
type Listener struct {
	a         *acceptor
	network   string
	addr      net.Addr
	keepAlive time.Duration
}

var _ net.Listener = (*Listener)(nil)

// Listen listens at a local address: network is tcp, tcp4 or tcp6; an empty host stands for all addresses, port 0 for a free one
// (rsocket, rbind, rlisten).
func Listen(network, address string) (net.Listener, error) {
	return new(ListenConfig).Listen(background, network, address)
}

// Listen listens at a local address, as the function does. c bounds the look-up of the address only.
func (lc *ListenConfig) Listen(c context.Context, network, address string) (net.Listener, error) {
	l, err := lc.listen(c, network, address)
	if err != nil {
		return nil, opError("listen", network, nil, nil, err)
	}
	return l, nil
}

func (lc *ListenConfig) listen(c context.Context, network, address string) (*Listener, error) {
	if !strings.HasPrefix(network, "tcp") {
		return nil, net.UnknownNetworkError(network)
	}
	addrs, err := resolve(c, network, address)
	if err != nil {
		return nil, err
	}
	at := addrs[0]
	if network == "tcp" && strings.HasPrefix(address, ":") {
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	b, err := joinHub(hostOf(lc.Host))
	if err != nil {
		return nil, err
	}
	ch, err := b.host.CreateEventChannel()
	if err != nil {
		b.leave()
		return nil, err
	}
	l := &Listener{network: network, keepAlive: keepAlive(lc.KeepAlive)}
	id, err := b.host.CreateID(ch, rdmacm.PSTCP, nil)
	if err == nil && (lc.V6Only || network == "tcp6") {
		err = id.SetAFOnly(true)
	}
	if err == nil {
		err = id.BindAddr(at)
	}
	if err == nil {
		opts := lc.withDefaults()
		l.a, err = listen(b, id, ch, lc.Backlog, func() Options { return opts })
	}
	if err != nil {
		_ = ch.Close()
		b.leave()
		return nil, err
	}
	l.addr = net.TCPAddrFromAddrPort(l.a.addr())
	return l, nil
}

// Accept waits for a connection (raccept), a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	st, err := l.a.accept(false)
	if err != nil {
		return nil, l.fail("accept", err)
	}
	st.startKeepalive(l.keepAlive)
	return newConn(st, l.network), nil
}

// Close ends listening. Connections that Accept has returned stay.
func (l *Listener) Close() error {
	if err := l.a.close(); err != nil {
		return l.fail("close", err)
	}
	return nil
}

// Addr is where it listens, a *net.TCPAddr.
func (l *Listener) Addr() net.Addr { return l.addr }

// SetDeadline ends calls of Accept that wait, and those to come, at a moment. The zero time is never.
func (l *Listener) SetDeadline(t time.Time) error {
	l.a.deadline.set(t)
	return nil
}

func (l *Listener) fail(op string, err error) error {
	if err != net.ErrClosed {
		err = ioError{err}
	}
	return opError(op, l.network, nil, l.addr, err)
}
