package rsocket_test

import (
	"context"
	"net/netip"
	"testing"

	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

var bg = context.Background()

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

func memory(tb testing.TB, faults rdmatest.Faults) *places {
	return newPlaces(tb, socktest.InMemory(tb, faults))
}

func overShm(tb testing.TB) *places { return newPlaces(tb, socktest.OverShm(tb)) }

func (at place) at(port int) string { return netip.AddrPortFrom(at.addr, uint16(port)).String() }

// listen listens on host b.
func (p *places) listen(o rsocket.Options) *rsocket.Listener {
	p.Helper()
	l, err := (&rsocket.ListenConfig{Host: p.b.host, Options: o, KeepAlive: -1}).Listen(bg, "tcp", p.b.at(0))
	p.ok(err)
	return l.(*rsocket.Listener)
}

func (p *places) dialer(o rsocket.Options) *rsocket.Dialer {
	return &rsocket.Dialer{Host: p.a.host, Options: o, KeepAlive: -1}
}

// pair is a connection between the hosts.
func (p *places) pair(client, server rsocket.Options) (c, s *rsocket.Conn) {
	p.Helper()
	l := p.listen(server)
	defer l.Close()
	return p.pairOf(l, client)
}

func (p *places) pairOf(l *rsocket.Listener, o rsocket.Options) (c, s *rsocket.Conn) {
	p.Helper()
	nc, err := p.dialer(o).Dial("tcp", l.Addr().String())
	p.ok(err)
	ns, err := l.Accept()
	p.ok(err)
	return nc.(*rsocket.Conn), ns.(*rsocket.Conn)
}
