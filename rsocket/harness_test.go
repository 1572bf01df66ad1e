package rsocket_test

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/shm"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/provider/soft"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/rsocket"
)

var bg = context.Background()

// place is where sockets live: a host and its address.
type place struct {
	host *rdmacm.Host
	addr netip.Addr
}

// places are two hosts that reach each other.
type places struct {
	testing.TB
	a, b place
	devs [2]*soft.Device // unless the network is in memory
	fab  *rdmatest.Fabric
}

// memory is two hosts on a network in memory.
func memory(tb testing.TB, faults rdmatest.Faults) *places {
	tb.Helper()
	p := &places{TB: tb, fab: rdmatest.New(rdmatest.Config{RealTime: true, Faults: faults, Seed: 1})}
	p.a = p.newPlace("a", netip.MustParseAddr("198.18.0.1"))
	p.b = p.newPlace("b", netip.MustParseAddr("198.18.0.2"))
	return p
}

func (p *places) newPlace(name string, addr netip.Addr) place {
	p.Helper()
	dev, err := p.fab.NewDevice(name, addr)
	p.ok(err)
	return place{rdmacm.NewHost(dev), addr}
}

// overUDP is two hosts on loopback addresses that no other process which runs these tests has.
func overUDP(tb testing.TB) *places { return overLoopback(tb, openUDP) }

// overShm is the same with shared memory between the hosts.
func overShm(tb testing.TB) *places {
	return overLoopback(tb, func(addrs []netip.Addr, ports int) (link.Link, error) {
		l, err := openUDP(addrs, ports)
		if err != nil {
			return nil, err
		}
		return shm.Near(l, addrs, wire.Port), nil
	})
}

func openUDP(addrs []netip.Addr, ports int) (link.Link, error) {
	return udp.Open(udp.Config{Addrs: addrs, Ports: ports})
}

func overLoopback(tb testing.TB, open func(addrs []netip.Addr, ports int) (link.Link, error)) *places {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("other systems have one loopback address")
	}
	p := &places{TB: tb}
	pid := os.Getpid()
	for i, at := range []*place{&p.a, &p.b} {
		at.addr = netip.AddrFrom4([4]byte{127, byte(pid>>8)&0x3f | 0x40, byte(pid), byte(i + 41)})
		dev, err := soft.New(soft.Config{Name: fmt.Sprintf("r%d", i), Addrs: []netip.Addr{at.addr}, Link: open})
		p.ok(err)
		p.devs[i] = dev
		at.host = rdmacm.NewHost(dev.Device)
	}
	return p
}

// close expects that nothing is left on the hosts: connections may take a moment to go.
func (p *places) close() {
	p.Helper()
	for _, at := range []place{p.a, p.b} {
		var err error
		for range 100 {
			if err = at.host.Close(); err == nil {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		p.ok(err)
	}
}

func (p *places) ok(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

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

// inBubble runs a test in virtual time, on a network in memory. At the end nothing may be left.
func inBubble(t *testing.T, faults rdmatest.Faults, f func(p *places)) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble whose goroutines wait for each other is never idle: devices look after themselves from time to time.
		stuck := time.AfterFunc(24*time.Hour, func() { panic("the test is stuck: a day has passed") })
		defer stuck.Stop()
		p := memory(t, faults)
		f(p)
		p.close()
	})
}

func must[T any](v T, err error) func(p *places) T {
	return func(p *places) T {
		p.Helper()
		p.ok(err)
		return v
	}
}

var _ net.Conn = (*rsocket.Conn)(nil)
