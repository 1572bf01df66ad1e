package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/observe"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// What package observe is told of the events of a connection, and how long it took.
func TestObservedEvents(t *testing.T) {
	const began, made = 5 * time.Second, 3 * time.Second // ago
	for _, c := range []struct {
		name    string
		event   *Event
		passive bool
		made    bool
		began   bool
		want    string
		took    time.Duration
	}{
		{"established", &Event{Type: EventEstablished}, false, false, true, observe.Connect, began},
		{"established, passive", &Event{Type: EventEstablished}, true, false, true, observe.Accept, began},
		{"response", &Event{Type: EventConnectResponse}, false, false, true, observe.Connect, began},
		{"rejected", &Event{Type: EventRejected, Status: 28}, false, false, true, observe.Connect, began},
		{"unreachable", &Event{Type: EventUnreachable, Status: -110}, true, false, true, observe.Accept, began},
		{"error", &Event{Type: EventConnectError, Status: -5}, false, false, true, observe.Connect, began},
		{"rejected afterwards", &Event{Type: EventRejected, Status: 28}, false, true, true, observe.Disconnect, made},
		{"disconnected", &Event{Type: EventDisconnected}, false, true, true, observe.Disconnect, made},
		{"not observed from the begin", &Event{Type: EventEstablished}, false, false, false, observe.Connect, 0},
		{"resolved", &Event{Type: EventAddrResolved}, false, false, true, "", 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []observe.Event
			stop := observe.Handle(func(e observe.Event) { got = append(got, e) })
			id := &ID{ps: PSTCP}
			id.mu.Lock()
			id.local, id.remote = netip.MustParseAddrPort("[::ffff:192.0.2.1]:5"), netip.MustParseAddrPort("192.0.2.2:6")
			id.passive = c.passive
			id.attrs.DestQPN = 9
			if c.began {
				id.began = time.Now().Add(-began)
			}
			if c.made {
				id.made = time.Now().Add(-made)
			}
			id.observe(c.event)
			established := !id.made.IsZero()
			id.mu.Unlock()
			stop()
			if c.want == "" {
				if len(got) > 0 {
					t.Errorf("%s: %+v", c.name, got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("%s: %+v", c.name, got)
			}
			e := got[0]
			if e.Name != c.want || e.Duration != c.took || (e.Err != nil) != c.event.failed() || e.DestQPN != 9 ||
				e.Local != netip.MustParseAddrPort("192.0.2.1:5") || e.Peer != id.remote || !e.Time.Equal(time.Now()) {
				t.Errorf("%s: %+v", c.name, e)
			}
			if want := c.made || c.event.Type == EventEstablished || c.event.Type == EventConnectResponse; established != want {
				t.Errorf("%s: established is %v", c.name, established)
			}
		})
	}
	if a := known(netip.AddrPort{}); a.IsValid() {
		t.Errorf("no address is %v", a)
	}
}

// TestEventThatIsNotObserved checks that an event without an observer does not note its time, which a later event would
// report.
func TestEventThatIsNotObserved(t *testing.T) {
	for _, on := range []bool{false, true} {
		if on {
			defer observe.Handle(func(observe.Event) {})()
		}
		id := &ID{ps: PSTCP, reporting: reporting{ch: newChannel(nil)}}
		id.mu.Lock()
		if !id.push(&Event{Type: EventEstablished}) || id.made.IsZero() == on {
			t.Errorf("observed %v: made at %v", on, id.made)
		}
		id.mu.Unlock()
	}
}

// The end of a stream is the peer's, or the answer to Disconnect; without a word it is a time-out.
func TestEndsOfStreams(t *testing.T) {
	for _, c := range []struct {
		leaving, silent bool
		state           state
		status          int
		conn            connState
		events          int
	}{
		{false, false, stConnect, 0, connPeerLeft, 1}, {false, true, stConnect, -int(syscall.ETIMEDOUT), connSilent, 1},
		{true, false, stConnect, 0, connDisconnected, 1},
		{true, true, stConnect, -int(syscall.ETIMEDOUT), connDisconnected, 1},
		{false, false, stDestroying, 0, connEstablished, 0}, {true, true, stRemoved, 0, connEstablished, 0},
	} {
		ch := newChannel(nil)
		id := &ID{ps: PSTCP, state: c.state, reporting: reporting{ch: ch}}
		id.conn, id.leaving = connEstablished, c.leaving
		id.onStreamEnd(c.silent)
		id.onStreamEnd(c.silent) // once only
		if n := len(ch.queue); n != c.events || id.conn != c.conn {
			t.Errorf("%+v: %d events, %v", c, n, id.conn)
		}
		if c.events > 0 && id.state != stDisconnect {
			t.Errorf("%+v: the ID is %v", c, id.state)
		}
		if len(ch.queue) > 0 && (ch.queue[0].Type != EventDisconnected || ch.queue[0].Status != c.status) {
			t.Errorf("%+v: %v, status %d", c, ch.queue[0].Type, ch.queue[0].Status)
		}
	}
}

// A listener on all devices needs one of them.
func TestListenOnSomeDevices(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var devices []*verbs.Device
	for _, a := range []netip.Addr{fuzzHere, fuzzThere} {
		dev, err := fab.NewDevice(a.String(), a)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, dev)
	}
	h := NewHost(devices...)
	if _, err := h.Devices(); err != nil {
		t.Fatal(err)
	}
	gone := func(list ...bool) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for i := range list {
			h.devices[i].gone = list[i]
		}
	}
	h.list = func() ([]*verbs.Device, error) { return nil, nil } // those that have gone are not replaced
	for _, c := range []struct {
		gone [2]bool
		want error
		n    int
	}{{[2]bool{false, false}, nil, 2}, {[2]bool{true, false}, nil, 1}, {[2]bool{false, true}, nil, 1},
		{[2]bool{true, true}, syscall.ENODEV, 0}} {
		gone(c.gone[:]...)
		id, err := h.CreateID(nil, PSTCP, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := id.Listen(0); !errors.Is(err, c.want) || len(id.listeners) != c.n {
			t.Errorf("%v: %v, %d listeners", c.gone, err, len(id.listeners))
		}
		gone(false, false)
		if err := id.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A handshake whose client has given up leaves its place to others.
func TestHandshakeThatFails(t *testing.T) {
	hosts := hereAndThere(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	here, giveUp := context.WithCancel(ctx)
	l, err := Listen(ctx, ":0", &Options{Host: hosts[1], Prepare: func(id *ID) error {
		giveUp() // the client withdraws its request
		ev, err := id.Channel().GetEvent(ctx)
		if err != nil || ev.Type != EventRejected {
			t.Errorf("%v, %v: must be RDMA_CM_EVENT_REJECTED", ev, err)
			return err
		}
		return ev.Ack()
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept(ctx)
		done <- err
	}()
	to := netip.AddrPortFrom(fuzzThere, l.Addr().Port()).String()
	if _, err := Dial(here, to, &Options{Host: hosts[0]}); err == nil {
		t.Error("the client is connected")
	}
	for l.under.Load() != 0 && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if n := l.under.Load(); n != 0 {
		t.Errorf("%d handshakes are under way", n)
	}
	cancel()
	<-done
	if err := errors.Join(l.Close(), hosts[0].Close(), hosts[1].Close()); err != nil {
		t.Error(err)
	}
}

// The sizes of the QP are the defaults if none is given, and those that are given as they are.
func TestSizesOfTheQPOfOptions(t *testing.T) {
	for _, c := range []struct{ opts, want verbs.QPCap }{
		{verbs.QPCap{}, verbs.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}},
		{verbs.QPCap{MaxSendWR: 3}, verbs.QPCap{MaxSendWR: 3}},
	} {
		for _, all := range []bool{false, true} {
			if got := (&Options{QP: c.opts, SigAll: all}).init(); got.Cap != c.want || got.SigAll != all {
				t.Errorf("%+v, all sends signaled %v: %+v", c.opts, all, got)
			}
		}
	}
}

// A request waits for its answer until that comes, or the ID is closed, or its device is removed.
func TestRequestThatWaits(t *testing.T) {
	h := memoryHost(t)
	ch := newChannel(h)
	id, err := h.CreateID(ch, PSTCP, nil)
	if err == nil {
		err = id.ResolveAddr(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(fuzzThere, 7), time.Second)
	}
	if err == nil {
		err = id.ResolveRoute(t.Context(), time.Second)
	}
	if err == nil {
		err = id.Connect(t.Context(), &ConnParam{QPNum: 5})
	}
	if err != nil {
		t.Fatal(err)
	}
	id.mu.Lock()
	for _, c := range []struct {
		state state
		conn  connState
		of    *cm.ID
		want  bool
	}{
		{stConnect, connRequesting, id.cmid, true}, {stConnect, connRequesting, new(cm.ID), false},
		{stDestroying, connRequesting, id.cmid, false}, {stRemoved, connRequesting, id.cmid, false},
		{stConnect, connFailed, id.cmid, false},
	} {
		id.state, id.conn = c.state, c.conn
		if got := id.waitsFor(c.of); got != c.want {
			t.Errorf("%v, %v, of this ID %v: waits %v", c.state, c.conn, c.of == id.cmid, got)
		}
	}
	id.state, id.conn = stConnect, connRequesting
	id.mu.Unlock()
	if err := errors.Join(ch.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A look-up of a datagram service that is answered is accepted, and answered once.
func TestAnsweredLookup(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var hosts [2]*Host
	for i, a := range []netip.Addr{fuzzHere, fuzzThere} {
		dev, err := fab.NewDevice(a.String(), a)
		if err != nil {
			t.Fatal(err)
		}
		hosts[i] = NewHost(dev)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	ok := FatalOn(t)
	l, err := hosts[1].CreateID(nil, PSUDP, nil)
	ok(err)
	ok(l.BindAddr(netip.AddrPortFrom(fuzzThere, 7471)))
	ok(l.Listen(0))
	c, err := hosts[0].CreateID(nil, PSUDP, nil)
	ok(err)
	ok(c.ResolveAddr(ctx, netip.AddrPort{}, netip.AddrPortFrom(fuzzThere, 7471), time.Second))
	ok(c.ResolveRoute(ctx, time.Second))
	made := make(chan error, 1)
	go func() { made <- c.Connect(ctx, &ConnParam{QPNum: 5}) }()
	s, err := l.GetRequest(ctx)
	ok(err)
	ece := ECE{VendorID: 11, Options: 22}
	ok(s.SetLocalECE(ece))
	ok(s.Accept(ctx, &ConnParam{QPNum: 6}))
	if s.conn != connAccepted {
		t.Errorf("the connection is %v, want %v", s.conn, connAccepted)
	}
	s.dev.cm.mu.Lock()
	if n := len(s.dev.cm.batch.Mail); n != 0 {
		t.Errorf("%d answers are not sent", n)
	}
	s.dev.cm.mu.Unlock()
	if err := s.Accept(ctx, &ConnParam{QPNum: 6}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("accepted again: %v", err)
	}
	ok(<-made)
	if c.conn != connEstablished || c.RemoteECE() != ece {
		t.Errorf("the connection of the client is %v, the ECE of its peer %+v", c.conn, c.RemoteECE())
	}
	if err := errors.Join(s.Close(), c.Close(), l.Close(), hosts[0].Close(), hosts[1].Close()); err != nil {
		t.Error(err)
	}
}

// Options.RetryCount replaces the number of Options.Param, and nothing else of it.
func TestRetryCountOfOptions(t *testing.T) {
	param := &ConnParam{RetryCount: 2, RNRRetryCount: 3, PrivateData: []byte("x")}
	for _, c := range []struct {
		count uint8
		param *ConnParam
		want  uint8
	}{{0, param, 2}, {5, param, 5}, {7, param, 7}, {Zero, param, Zero}, {verbs.Zero, param, Zero}, {5, nil, 5}} {
		p, err := (&Options{RetryCount: c.count, Param: c.param}).param()
		if err != nil || p.RetryCount != c.want || (p.RNRRetryCount == 3) != (c.param != nil) ||
			(string(p.PrivateData) == "x") != (c.param != nil) {
			t.Errorf("%+v: %+v, %v", c, p, err)
		}
	}
	if param.RetryCount != 2 {
		t.Error("the program's parameters have changed")
	}
}

// Options that are not given are not set: not every ID can have them.
func TestOptionsThatAreNotGiven(t *testing.T) {
	id := &ID{ps: PSUDP, qpType: verbs.QPTypeUD}
	if err := new(Options).set(id); err != nil {
		t.Errorf("nothing is given: %v", err)
	}
	for name, o := range map[string]*Options{
		"keep-alive": {KeepAlive: time.Second}, "ACK timeout": {AckTimeout: 5}, "no ACK timeout": {AckTimeout: Zero},
		"path MTU": {PathMTU: 77},
	} {
		if err := o.set(id); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s of datagrams: %v", name, err)
		}
	}
}

// An event waits for an ID if it is of that ID and of that type.
func TestUnreadEvents(t *testing.T) {
	ch := newChannel(nil)
	id, other := &ID{reporting: reporting{ch: ch}}, new(ID)
	id.mu.Lock()
	defer id.mu.Unlock()
	for _, c := range []struct {
		owner *ID
		event EventType
		want  bool
	}{{other, EventDisconnected, false}, {id, EventEstablished, false}, {id, EventDisconnected, true}} {
		ch.push(&Event{Type: c.event, owner: c.owner})
		if got := id.unread(EventDisconnected); got != c.want {
			t.Errorf("after %v of this ID %v: %v", c.event, c.owner == id, got)
		}
	}
}

// A type of events without a name is unknown.
func TestNamesOfEvents(t *testing.T) {
	for event, want := range map[EventType]string{
		EventAddrResolved: "RDMA_CM_EVENT_ADDR_RESOLVED", EventType(200): "UNKNOWN EVENT",
	} {
		if got := event.String(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for event := EventAddrResolved; event < EventAddrResolved+50; event++ {
		if event.String() == "" {
			t.Errorf("event %d has no name", int(event))
		}
	}
}
