package rdmacm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/verbs"
)

// The steps to a connection: the address, the route, the request.

var fuzzPeer = netip.AddrPortFrom(fuzzThere, 7)

// resolvedOn is a synchronous ID of a host that has resolved its address, and its route too if route is set.
func resolvedOn(t *testing.T, h *Host, ps PortSpace, route bool) *ID {
	t.Helper()
	id, err := h.CreateID(nil, ps, nil)
	if err == nil {
		err = id.ResolveAddr(t.Context(), netip.AddrPort{}, fuzzPeer, time.Second)
	}
	if err == nil && route {
		err = id.ResolveRoute(t.Context(), time.Second)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Each step of a synchronous ID forgets the errors of earlier ones, which the program has not taken.
func TestStepsForgetEarlierErrors(t *testing.T) {
	h := memoryHost(t)
	late := func(id *ID) {
		id.mu.Lock()
		defer id.mu.Unlock()
		id.push(&Event{Type: EventAddrError, Status: -int(syscall.EIO)})
		id.push(&Event{Type: EventRouteError, Status: -int(syscall.EIO)})
	}
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	late(id)
	if err := id.ResolveAddr(t.Context(), netip.AddrPort{}, fuzzPeer, time.Second); err != nil {
		t.Errorf("ResolveAddr: %v", err)
	}
	late(id)
	if err := id.ResolveRoute(t.Context(), 1); err != nil { // any time is positive
		t.Errorf("ResolveRoute: %v", err)
	}
	ud := resolvedOn(t, h, PSUDP, false)
	late(ud)
	group := netip.MustParseAddrPort("239.1.2.3:0")
	if err := ud.JoinMulticast(t.Context(), group, nil); err != nil {
		t.Errorf("JoinMulticast: %v", err)
	}
	if err := errors.Join(id.Close(), ud.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The path MTU that the program fixes may be as large as that of the port, and no larger.
func TestPathMTUOfThePort(t *testing.T) {
	h := memoryHost(t)
	for more, want := range map[verbs.MTU]error{0: nil, 1: syscall.EINVAL} {
		id := resolvedOn(t, h, PSTCP, false)
		mtu, err := id.dev.mtu(1)
		if err != nil {
			t.Fatal(err)
		}
		id.pathMTU = mtu + more
		if err := id.ResolveRoute(t.Context(), time.Second); !errors.Is(err, want) {
			t.Errorf("%v of at most %v: %v, want %v", id.pathMTU, mtu, err, want)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// An address of AF_IB that an ID is bound to makes it one between GIDs, also if it then resolves an IP address.
func TestResolveAddrAfterBindAddrIB(t *testing.T) {
	h := memoryHost(t)
	for _, ib := range []bool{true, false} {
		id, err := h.CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if ib {
			err = id.BindAddrIB(SockaddrIB{GID: verbs.GIDFromAddr(fuzzHere), SID: ServiceID(PSTCP, 0)})
		} else {
			err = id.BindAddr(netip.AddrPortFrom(fuzzHere, 0))
		}
		if err == nil {
			err = id.ResolveAddr(t.Context(), netip.AddrPort{}, fuzzPeer, time.Second)
		}
		if err != nil || id.IsAFIB() != ib {
			t.Errorf("bound as AF_IB %v: AF_IB is %v, %v", ib, id.IsAFIB(), err)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// An endpoint of the family AF_IB has the source of its addresses, and a QP also if the addresses have a route.
func TestEndpointOfGIDs(t *testing.T) {
	h := memoryHost(t)
	path := PathRec{SGID: verbs.GIDFromAddr(fuzzHere), DGID: verbs.GIDFromAddr(fuzzThere), MTU: verbs.MTU1024,
		PKey: 0xFFFF}
	res := &AddrInfo{Family: AFIB, PortSpace: PSTCP, QPType: verbs.QPTypeRC, SrcAddr: netip.AddrPortFrom(fuzzHere, 4321),
		DstAddr: fuzzPeer, Route: path.data()}
	init := &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	id, err := h.CreateEP(t.Context(), res, nil, init)
	if err != nil {
		t.Fatal(err)
	}
	if id.LocalAddr() != res.SrcAddr || id.QP() == nil || id.Route().PathRec[0].MTU != verbs.MTU1024 ||
		id.pathMTU != verbs.MTU1024 {
		t.Errorf("at %v, QP %v, %+v", id.LocalAddr(), id.QP(), id.Route())
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The time that a connection takes counts from Connect on, for tools.
func TestBeginOfAConnection(t *testing.T) {
	h := memoryHost(t)
	for _, observed := range []bool{false, true} {
		id := resolvedOn(t, h, PSUDP, true)
		if observed {
			defer observe.Handle(func(observe.Event) {})()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := id.Connect(ctx, &ConnParam{QPNum: 5}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if id.began.IsZero() == observed {
			t.Errorf("observed %v: begun at %v", observed, id.began)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A request that is refused for its path MTU is repeated with a smaller one, as long as there is one, and the request
// can be sent.
func TestSmallerPathMTUs(t *testing.T) {
	h := memoryHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name    string
		mtu     verbs.MTU
		peer    verbs.MTU
		private int
		want    verbs.MTU // 0: not repeated
	}{
		{"no MTU is named", verbs.MTU1024, 0, 0, verbs.MTU512},
		{"a smaller one is", verbs.MTU1024, verbs.MTU256, 0, verbs.MTU256},
		{"a larger one is", verbs.MTU1024, verbs.MTU4096, 0, verbs.MTU512}, {"the smallest one", verbs.MTU256, 0, 0, 0},
		{"too much data", verbs.MTU1024, 0, 200, 0},
	} {
		id := resolvedOn(t, h, PSTCP, true)
		if err := id.Connect(ctx, &ConnParam{QPNum: 5}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		first := id.cmid
		id.asked.Path.MTU, id.asked.Private = uint8(c.mtu), make([]byte, c.private)
		var r cmmsg.REJ = make([]byte, 256)
		var named []byte
		if c.peer != 0 {
			named = []byte{uint8(c.peer)}
		}
		r.Put(1, 2, 0, cmmsg.RejInvalidMTU, named)
		id.mu.Lock()
		asked := id.askForLess(r)
		id.mu.Unlock()
		if asked != (c.want != 0) || asked && id.path.MTU != c.want || asked == (id.cmid == first) {
			t.Errorf("%s: asked %v, %v, want %v", c.name, asked, id.path.MTU, c.want)
		}
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A device that sends through a network interface is told from one that does not, and an address at no place has none.
func TestDeviceWithoutInterface(t *testing.T) {
	h, d := startedHost(t)
	for _, p := range []gidPlace{noPlace, {firstPort, 1}, {77, 0}} {
		if name := d.netDev(p); name != "" || d.onInterface(p) {
			t.Errorf("%v: interface %q", p, name)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A look-up of an address can be taken once, and no other begins before that or while it runs.
func TestOneLookupAtATime(t *testing.T) {
	id, err := NewHost().CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	var running, asked atomic.Bool
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		if running.Load() {
			asked.Store(true)
			if err := id.ResolveAddrInfo(context.Background(), "127.0.0.1", "7", nil); !errors.Is(err, syscall.EBUSY) {
				t.Errorf("while another look-up runs: %v, want EBUSY", err)
			}
		}
		return nil, syscall.EACCES
	}}
	running.Store(true)
	if err := id.ResolveAddrInfo(t.Context(), "none.verbena.test", "7", nil); err == nil {
		t.Error("a name was found without a resolver")
	}
	running.Store(false)
	if !asked.Load() {
		t.Skip("the system's resolver answers without a question")
	}
	if _, err := id.QueryAddrInfo(); !errors.Is(err, syscall.ENOENT) || len(id.ch.queue) != 0 {
		t.Errorf("after a look-up that has failed: %v, %d events", err, len(id.ch.queue))
	}
	if name := canonical(t.Context(), "none.verbena.test"); name != "none.verbena.test" {
		t.Errorf("the canonical name is %q", name)
	}
	if err := id.ResolveAddrInfo(t.Context(), "127.0.0.1", "7", nil); err != nil {
		t.Error(err)
	}
	if err := id.ResolveAddrInfo(t.Context(), "127.0.0.1", "7", nil); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("before the result is taken: %v, want EBUSY", err)
	}
	if res, err := id.QueryAddrInfo(); err != nil || res.DstAddr != netip.MustParseAddrPort("127.0.0.1:7") {
		t.Errorf("%+v, %v", res, err)
	}
	if err := id.Close(); err != nil {
		t.Error(err)
	}
}

// The device that is chosen for a peer is named to tools with the addresses, which have no port.
func TestChosenDeviceIsObserved(t *testing.T) {
	h, d := startedHost(t)
	var got []observe.Event
	stop := observe.Handle(func(e observe.Event) { got = append(got, e) })
	d.chosen(fuzzHere, fuzzThere)
	stop()
	if len(got) != 1 || got[0].Name != observe.Device || got[0].Local != netip.AddrPortFrom(fuzzHere, 0) ||
		got[0].Peer != netip.AddrPortFrom(fuzzThere, 0) || !strings.Contains(got[0].Reason, fuzzHere.String()) {
		t.Errorf("%+v", got)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A peer that cannot be reached has no route, though the port has an MTU.
func TestRouteToAPeerThatCannotBeReached(t *testing.T) {
	h := memoryHost(t)
	id := resolvedOn(t, h, PSTCP, false)
	id.mu.Lock()
	id.state = stRouteQuery
	id.onRoute(syscall.EHOSTUNREACH)
	id.mu.Unlock()
	ev, err := id.Channel().TryGetEvent()
	if err != nil || ev.Type != EventRouteError || ev.Status != -int(syscall.EHOSTUNREACH) || id.state != stAddrResolved {
		t.Errorf("%+v, %v; the ID is %v", ev, err, id.state)
	}
	if err := errors.Join(ev.Ack(), id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The addresses of a route count if no other is given.
func TestAddressesOfARoute(t *testing.T) {
	path := PathRec{SGID: verbs.GIDFromAddr(fuzzHere), DGID: verbs.GIDFromAddr(fuzzThere)}
	own := netip.MustParseAddrPort("192.0.2.1:5")
	for _, c := range []struct {
		hints    AddrInfo
		node     string
		src, dst netip.AddrPort
	}{
		{AddrInfo{}, "", netip.AddrPortFrom(fuzzHere, 0), netip.AddrPortFrom(fuzzThere, 0)},
		{AddrInfo{DstAddr: own}, "", netip.AddrPort{}, own},
		{AddrInfo{SrcAddr: own}, "", own, netip.AddrPort{}},
		{AddrInfo{}, "192.0.2.1", netip.AddrPort{}, netip.AddrPortFrom(own.Addr(), 0)},
	} {
		hints := c.hints
		hints.Route = path.data()
		res, err := GetAddrInfo(t.Context(), c.node, "", &hints)
		if err != nil || res.SrcAddr != c.src || res.DstAddr != c.dst {
			t.Errorf("%q, %+v: %+v, %v", c.node, c.hints, res, err)
		}
	}
}
