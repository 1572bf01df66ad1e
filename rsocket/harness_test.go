package rsocket_test

import (
	"context"
	"testing"

	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
	"github.com/verbena-rdma/verbena/rsocket/internal/socktest"
)

var bg = context.Background()

// places are two hosts that reach each other.
type places struct{ *socktest.Places }

// inBubble runs a test in virtual time, on a network in memory. At the end no object may be left on the hosts.
func inBubble(t *testing.T, faults rdmatest.Faults, f func(p *places)) {
	socktest.InBubble(t, faults, func(p *socktest.Places) { f(&places{p}) })
}

func overUDP(tb testing.TB) *places { return &places{socktest.OverUDP(tb)} }

func overEthernet(tb testing.TB) *places { return &places{socktest.OverEthernet(tb)} }

func must[T any](v T, err error) func(p *places) T {
	return func(p *places) T {
		p.Helper()
		p.OK(err)
		return v
	}
}

func memory(tb testing.TB, faults rdmatest.Faults) *places {
	return &places{socktest.InMemory(tb, faults)}
}

func overShm(tb testing.TB) *places { return &places{socktest.OverShm(tb)} }

// listen listens on host b.
func (p *places) listen(o rsocket.Options) *rsocket.Listener {
	p.Helper()
	l, err := (&rsocket.ListenConfig{Host: p.B.Host, Options: o, KeepAlive: -1}).Listen(bg, "tcp", p.B.At(0))
	p.OK(err)
	return l.(*rsocket.Listener)
}

func (p *places) dialer(o rsocket.Options) *rsocket.Dialer {
	return &rsocket.Dialer{Host: p.A.Host, Options: o, KeepAlive: -1}
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
	p.OK(err)
	ns, err := l.Accept()
	p.OK(err)
	return nc.(*rsocket.Conn), ns.(*rsocket.Conn)
}
