package rdmacm_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// world is two hosts, a client and a server, on a network in memory, in virtual time.
type world struct {
	*testing.T
	fab  *rdmatest.Fabric
	a, b *rdmacm.Host
}

var (
	addrA  = netip.MustParseAddr("198.18.0.1")
	addrB  = netip.MustParseAddr("198.18.0.2")
	addrA6 = netip.MustParseAddr("fd00::1")
	addrB6 = netip.MustParseAddr("fd00::2")
	bg     = context.Background()
)

const (
	port    = 7471
	timeout = 2 * time.Second
)

// in runs a test in a world. At the end nothing may be left: no ID on a host, no goroutine in the bubble.
func in(t *testing.T, f func(w *world)) { inFaulty(t, rdmatest.Faults{}, f) }

func inFaulty(t *testing.T, faults rdmatest.Faults, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		// A bubble whose goroutines wait for each other is never idle: devices run timers.
		stuck := time.AfterFunc(24*time.Hour, func() { panic("the test is stuck: a day has passed") })
		defer stuck.Stop()
		w := &world{T: t, fab: rdmatest.New(rdmatest.Config{RealTime: true, Faults: faults, Seed: 1})}
		w.a = w.host("a", addrA, addrA6)
		w.b = w.host("b", addrB, addrB6)
		f(w)
		w.ok(w.a.Close())
		w.ok(w.b.Close())
	})
}

func (w *world) host(name string, addrs ...netip.Addr) *rdmacm.Host {
	w.Helper()
	dev, err := w.fab.NewDevice(name, addrs...)
	w.ok(err)
	return rdmacm.NewHost(dev)
}

func (w *world) ok(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func must[T any](v T, err error) func(*world) T {
	return func(w *world) T {
		w.Helper()
		w.ok(err)
		return v
	}
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }

// end is an asynchronous ID with its channel.
type end struct {
	*rdmacm.ID
	w  *world
	ch *rdmacm.EventChannel
}

func (w *world) newEnd(h *rdmacm.Host, ps rdmacm.PortSpace) *end {
	w.Helper()
	ch := must(h.CreateEventChannel())(w)
	return &end{must(h.CreateID(ch, ps, nil))(w), w, ch}
}

// next expects the next event of the channel. The caller acknowledges it.
func (w *world) next(ch *rdmacm.EventChannel, want rdmacm.EventType) *rdmacm.Event {
	w.Helper()
	ctx, cancel := context.WithTimeout(bg, 10*time.Minute)
	defer cancel()
	ev, err := ch.GetEvent(ctx)
	if err != nil {
		w.Fatalf("waiting for %v: %v", want, err)
	}
	if ev.Type != want {
		w.Fatalf("%v (%v) came instead of %v", ev.Type, ev.Err(), want)
	}
	return ev
}

// expect is next for an event that is acknowledged at once.
func (e *end) expect(want rdmacm.EventType) *rdmacm.Event {
	e.w.Helper()
	ev := e.w.next(e.ch, want)
	e.w.ok(ev.Ack())
	return ev
}

// none expects no event.
func (e *end) none() {
	e.w.Helper()
	synctest.Wait()
	if ev, err := e.ch.TryGetEvent(); err == nil {
		e.w.Errorf("unexpected %v", ev.Type)
		_ = ev.Ack()
	}
}

func (e *end) close() {
	e.w.Helper()
	if e.QP() != nil {
		e.w.ok(e.DestroyQP())
	}
	e.w.ok(e.Close())
	e.w.ok(e.ch.Close())
}

var caps = verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}

func qpInit() *verbs.QPInitAttr { return &verbs.QPInitAttr{Cap: caps} }

// listen makes a listener on host b.
func (w *world) listen(addr netip.AddrPort, backlog int) *end {
	w.Helper()
	l := w.newEnd(w.b, rdmacm.PSTCP)
	w.ok(l.BindAddr(addr))
	w.ok(l.Listen(backlog))
	return l
}

// resolved makes an ID on host a that may Connect.
func (w *world) resolved(ps rdmacm.PortSpace, dst netip.AddrPort) *end {
	w.Helper()
	e := w.newEnd(w.a, ps)
	w.ok(e.ResolveAddr(bg, netip.AddrPort{}, dst, timeout))
	e.expect(rdmacm.EventAddrResolved)
	w.ok(e.ResolveRoute(bg, timeout))
	e.expect(rdmacm.EventRouteResolved)
	return e
}

// connected makes a connection to a listener; s is the server's end, on the listener's channel.
func (w *world) connected(l *end, dst netip.AddrPort) (c, s *end) {
	w.Helper()
	c, s = w.accepted(l, dst)
	s.expect(rdmacm.EventEstablished)
	return c, s
}

// accepted is connected up to the RTU: the client is established.
func (w *world) accepted(l *end, dst netip.AddrPort) (c, s *end) {
	w.Helper()
	c = w.resolved(rdmacm.PSTCP, dst)
	w.ok(c.CreateQP(nil, qpInit()))
	w.ok(c.Connect(bg, nil))
	ev := w.next(l.ch, rdmacm.EventConnectRequest)
	s = &end{ev.ID, w, l.ch}
	w.ok(s.CreateQP(nil, qpInit()))
	w.ok(s.Accept(bg, nil))
	w.ok(ev.Ack())
	c.expect(rdmacm.EventEstablished)
	return c, s
}

// isMessage reports whether a packet has a connection management datagram with an attribute ID.
func isMessage(p rdmatest.Packet, attr byte) bool {
	return len(p.Data) == 12+8+256 && p.Data[20+17] == attr
}

const attrRTU = 0x14

// closeID closes an ID whose channel is another's.
func (e *end) closeID() {
	e.w.Helper()
	if e.QP() != nil {
		e.w.ok(e.DestroyQP())
	}
	e.w.ok(e.Close())
}

func testName(args ...any) string { return fmt.Sprint(args...) }
