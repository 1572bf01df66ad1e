package socket_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// places are two hosts that reach each other.
type places struct{ *socktest.Places }

// inBubble runs a test in virtual time, on a network in memory. At the end no object may be left on the hosts.
func inBubble(t *testing.T, faults rdmatest.Faults, f func(p *places)) {
	socktest.InBubble(t, faults, func(p *socktest.Places) { f(&places{p}) })
}

func overUDP(tb testing.TB) *places { return &places{socktest.OverUDP(tb)} }

func must[T any](v T, err error) func(p *places) T {
	return func(p *places) T {
		p.Helper()
		p.OK(err)
		return v
	}
}

func (p *places) errno(what string, err error, want syscall.Errno) {
	p.Helper()
	if !errors.Is(err, want) {
		p.Errorf("%s: %v, want %v", what, err, want)
	}
}

// socket makes a stream socket on a host.
func (p *places) socket(at socktest.Place, typ socket.Type) *socket.Socket {
	p.Helper()
	return must(socket.NewOn(at.Host, socket.Inet, typ, 0))(p)
}

// server makes a listening socket on host b.
func (p *places) server() (*socket.Socket, netip.AddrPort) {
	p.Helper()
	l := p.socket(p.B, socket.SockStream)
	p.OK(l.Bind(netip.AddrPortFrom(p.B.Addr, 0)))
	p.OK(l.Listen(0))
	return l, must(l.SockName())(p)
}

// sockets returns the two ends of a connection. The functions set options before it is made.
func (p *places) sockets(client, server func(*socket.Socket)) (c, s *socket.Socket) {
	p.Helper()
	l, at := p.server()
	defer l.Close()
	if server != nil {
		server(l)
	}
	c = p.socket(p.A, socket.SockStream)
	if client != nil {
		client(c)
	}
	p.OK(c.Connect(at))
	s, from, err := l.Accept()
	p.OK(err)
	if name := must(c.SockName())(p); from != name {
		p.Errorf("accepted from %v, the client is %v", from, name)
	}
	return c, s
}

func (p *places) closeSockets(list ...*socket.Socket) {
	p.Helper()
	for _, s := range list {
		p.OK(s.Close())
	}
}
