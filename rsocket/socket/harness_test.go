package socket_test

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
	"github.com/verbena-rdma/verbena/rsocket/socket"
)

// place is a host and its address.
type place struct {
	host *rdmacm.Host
	addr netip.Addr
}

// places are two hosts that reach each other.
type places struct {
	testing.TB
	a, b  place
	devs  [2]*soft.Device // unless the network is in memory
	fab   *rdmatest.Fabric
	hosts *socktest.Hosts
}

func newPlaces(tb testing.TB, h *socktest.Hosts) *places {
	return &places{
		TB: tb, a: place{h.Host[0], h.Addr[0]}, b: place{h.Host[1], h.Addr[1]}, devs: h.Devs, fab: h.Fab, hosts: h,
	}
}

// inBubble runs a test in virtual time, on a network in memory. At the end nothing may be left.
func inBubble(t *testing.T, faults rdmatest.Faults, f func(p *places)) {
	socktest.InBubble(t, faults, func(t *testing.T, h *socktest.Hosts) { f(newPlaces(t, h)) })
}

func overUDP(tb testing.TB) *places { return newPlaces(tb, socktest.OverUDP(tb)) }

// close expects that nothing is left on the hosts.
func (p *places) close() {
	p.Helper()
	p.ok(socktest.Close(p.a.host, p.b.host))
}

func (p *places) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func must[T any](v T, err error) func(p *places) T {
	return func(p *places) T {
		p.Helper()
		p.ok(err)
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
func (p *places) socket(at place, typ socket.Type) *socket.Socket {
	p.Helper()
	return must(socket.NewOn(at.host, socket.Inet, typ, 0))(p)
}

// server makes a listening socket on host b.
func (p *places) server() (*socket.Socket, netip.AddrPort) {
	p.Helper()
	l := p.socket(p.b, socket.SockStream)
	p.ok(l.Bind(netip.AddrPortFrom(p.b.addr, 0)))
	p.ok(l.Listen(0))
	return l, must(l.SockName())(p)
}

// sockets is a connection between sockets. Options are set by the functions before it is made.
func (p *places) sockets(client, server func(*socket.Socket)) (c, s *socket.Socket) {
	p.Helper()
	l, at := p.server()
	defer l.Close()
	if server != nil {
		server(l)
	}
	c = p.socket(p.a, socket.SockStream)
	if client != nil {
		client(c)
	}
	p.ok(c.Connect(at))
	s, from, err := l.Accept()
	p.ok(err)
	if name := must(c.SockName())(p); from != name {
		p.Errorf("accepted from %v, the client is %v", from, name)
	}
	return c, s
}

func (p *places) closeSockets(list ...*socket.Socket) {
	p.Helper()
	for _, s := range list {
		p.ok(s.Close())
	}
}
