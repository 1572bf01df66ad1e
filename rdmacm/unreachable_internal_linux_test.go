package rdmacm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/provider/soft"
)

// loopbackID is an ID of a software device on the loopback address, on a channel of its own. It may connect to a host
// at 127.7.7.77, where no device is: its UDP port is closed.
func loopbackID(t *testing.T) (id *ID, next func(EventType) *Event) {
	t.Helper()
	addr := netip.MustParseAddr("127.0.0.1")
	dev, err := soft.New(soft.Config{Name: "loop", Addrs: []netip.Addr{addr}})
	if err != nil {
		t.Fatal(err)
	}
	h := NewHost(dev.Device)
	ok := FatalOn(t)
	ch := newChannel(h)
	id, err = h.CreateID(ch, PSTCP, nil)
	ok(err)
	t.Cleanup(func() { ok(errors.Join(id.Close(), ch.Close(), h.Close())) })
	next = func(want EventType) *Event {
		t.Helper()
		ev, err := ch.GetEvent(t.Context())
		ok(err)
		if ev.Type != want {
			t.Fatalf("%v (%v) instead of %v", ev.Type, ev.Err(), want)
		}
		ok(ev.Ack())
		return ev
	}
	ok(id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.MustParseAddrPort("127.7.7.77:7"), time.Second))
	next(EventAddrResolved)
	ok(id.ResolveRoute(t.Context(), time.Second))
	next(EventRouteResolved)
	return id, next
}

// A request to a host whose port is closed fails with the first ICMP message, and is not repeated.
func TestRequestToAClosedPort(t *testing.T) {
	id, next := loopbackID(t)
	if err := id.Connect(t.Context(), &ConnParam{QPNum: 5}); err != nil {
		t.Fatal(err)
	}
	if ev := next(EventUnreachable); ev.Status != -int(syscall.ECONNREFUSED) || ev.Err() == nil {
		t.Errorf("status %d, %v", ev.Status, ev.Err())
	}
	id.mu.Lock()
	waits := id.waitsFor(id.cmid)
	id.mu.Unlock()
	if waits || id.dev.cm.live() != 0 {
		t.Errorf("the request waits %v; %d connections", waits, id.dev.cm.live())
	}
}

// A peer whose host says that its port is closed is a suspect, until it has been asked again.
func TestVigilFindsAClosedPort(t *testing.T) {
	id, _, end := dialed(t)
	defer end()
	m := id.dev.cm
	dead, alive := netip.MustParseAddr("127.7.7.77"), id.cmid.Path().Dst
	src := id.cmid.Path().Src
	move := func(from, to netip.Addr) {
		m.mu.Lock()
		defer m.mu.Unlock()
		id.cmid.Path().Src, id.cmid.Path().Dst = from, to
		if m.vigil.next != nil {
			m.vigil.next.Stop()
		}
		m.vigil.next = nil
	}
	move(netip.MustParseAddr("127.0.0.1"), dead)
	m.vigil.onInterfaces = true
	m.keepVigil()
	if s := m.vigil.suspects; len(s) != 1 || s[0] != id {
		t.Errorf("%d suspects, want the ID", len(s))
	}
	if m.vigil.next == nil {
		t.Error("the peer is not asked again")
	}
	m.vigil.onInterfaces = false
	move(src, alive)
	m.keepVigil()
	if s := m.vigil.suspects; len(s) != 0 {
		t.Errorf("%d suspects among peers that cannot be asked", len(s))
	}
}
