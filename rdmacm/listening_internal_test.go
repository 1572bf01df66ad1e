package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/seam"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// What a listener leaves when it does not begin, or ends, and the connections that it takes.

// A wait for a request ends with another event, which the ID keeps in place of its last one.
func TestEventInsteadOfARequest(t *testing.T) {
	id := new(ID)
	last := &Event{Type: EventUser, owner: id}
	id.acks.take()
	id.event = last
	for event, want := range map[EventType]syscall.Errno{
		EventDeviceRemoval: syscall.ENODEV, EventDisconnected: syscall.EINVAL,
	} {
		id.acks.take()
		ev := &Event{Type: event, owner: id}
		if child, err := id.adopt("get_request", ev, nil); child != nil || !errors.Is(err, want) {
			t.Errorf("%v: %v, want %v", event, err, want)
		}
		if id.event != ev || !last.acked || id.acks.open != 1 {
			t.Errorf("%v: the event is %v, the last one is acknowledged: %v; %d are open", event, id.event.Type, last.acked,
				id.acks.open)
		}
		last = ev
	}
}

// A listener has no use for the source address of its options. Its close ends what its handshakes wait for.
func TestListenerOfNoHost(t *testing.T) {
	h := memoryHost(t)
	l, err := Listen(t.Context(), "[]:0", &Options{Host: h, SrcAddr: netip.AddrPortFrom(fuzzHere, 9)})
	if err != nil {
		t.Fatal(err)
	}
	if !l.Addr().Addr().IsUnspecified() {
		t.Errorf("it listens at %v", l.Addr())
	}
	if l.ctx.Err() != nil {
		t.Error("the handshakes of an open listener have ended")
	}
	if err := errors.Join(l.Close(), h.Close()); err != nil || l.ctx.Err() == nil {
		t.Errorf("%v; the context of the handshakes is %v", err, l.ctx.Err())
	}
}

// hereAndThere makes a host at fuzzHere and one at fuzzThere, in one network. The caller closes them.
func hereAndThere(t *testing.T) (hosts []*Host) {
	t.Helper()
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	for _, a := range []netip.Addr{fuzzHere, fuzzThere} {
		dev, err := fab.NewDevice(a.String(), a)
		FatalOn(t)(err)
		hosts = append(hosts, NewHost(dev))
	}
	return hosts
}

// requestTo sends a request of a host at fuzzHere, without QP unless its sizes are given, and takes it at fuzzThere.
func requestTo(t *testing.T, init *verbs.QPInitAttr) (active, passive *ID, end func()) {
	t.Helper()
	hosts, ok := hereAndThere(t), FatalOn(t)
	l, err := hosts[1].CreateID(nil, PSTCP, nil)
	ok(err)
	ok(l.BindAddr(fuzzPeer))
	ok(l.Listen(1))
	active = resolvedOn(t, hosts[0], PSTCP, true)
	if init != nil {
		ok(active.CreateQP(nil, init))
	}
	ok(active.Migrate(newChannel(hosts[0])))
	ok(active.Connect(t.Context(), &ConnParam{QPNum: 5}))
	passive, err = l.GetRequest(t.Context())
	ok(err)
	ok(passive.Migrate(newChannel(hosts[1])))
	return active, passive, func() {
		if active.QP() != nil {
			ok(active.DestroyQP())
		}
		ok(errors.Join(active.Close(), passive.Close(), l.Close(), hosts[0].Close(), hosts[1].Close()))
	}
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after 10 s", what)
		}
	}
}

// A QP that cannot be connected when the reply comes is moved to ERR, which flushes its requests.
func TestReplyToAQPThatCannotBeConnected(t *testing.T) {
	active, passive, end := requestTo(t, &verbs.QPInitAttr{
		Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	defer end()
	ok := FatalOn(t)
	ok(active.QP().Modify(&verbs.QPAttr{QPState: verbs.QPSReset}, verbs.QPAttrState))
	active.dev.attr.DeviceCapFlags |= verbs.DeviceFlushGlobal
	active.sgid.index = 99
	ok(passive.Accept(t.Context(), &ConnParam{QPNum: 6}))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	ev, err := active.Channel().GetEvent(ctx)
	ok(err)
	if ev.Type != EventConnectError || active.QP().State() != verbs.QPSErr || !active.flushed {
		t.Errorf("%v; the QP is in %v, flushed %v", ev.Type, active.QP().State(), active.flushed)
	}
	ok(ev.Ack())
}

// A peer that asks for an alternate path is answered at once.
func TestAlternatePathIsRefused(t *testing.T) {
	active, passive, end := dialed(t)
	defer end()
	if err := active.LoadPath(); err != nil {
		t.Fatal(err)
	}
	m := passive.dev.cm
	eventually(t, "a question about the path", func() bool {
		c := m.counters()
		return c.Rx.Of(cmmsg.KindLAP) > 0
	})
	m.deliver()
	m.mu.Lock()
	c, left := m.machine.Counters, len(m.batch.Mail)
	m.mu.Unlock()
	if c.Tx.Of(cmmsg.KindAPR) == 0 || left != 0 {
		t.Errorf("%d answers, of which %d are not sent", c.Tx.Of(cmmsg.KindAPR), left)
	}
	eventually(t, "an answer about the path", func() bool {
		c := active.dev.cm.counters()
		return c.Rx.Of(cmmsg.KindAPR) > 0
	})
}

// A datagram that cannot be sent does not keep back the others of the same call.
func TestDatagramAfterOneThatCannotBeSent(t *testing.T) {
	active, _, end := dialed(t)
	defer end()
	m := active.dev.cm
	before := m.port.Counters().Sent
	m.mu.Lock()
	for _, pkey := range []uint16{0x8123, 0xffff} {
		mail := cm.Mail{Path: active.cmPath.Path}
		mail.Path.PKey = pkey
		m.batch.Mail = append(m.batch.Mail, mail)
	}
	m.flush()
	m.mu.Unlock()
	m.agent.Flush()
	if sent := m.port.Counters().Sent - before; sent != 1 {
		t.Errorf("%d datagrams were sent, want 1", sent)
	}
}

// The address that is chosen for a peer, as other packages ask for it.
func TestTowardAPeer(t *testing.T) {
	h := memoryHost(t)
	if a, err := seam.Toward(h, fuzzThere); err != nil || a != any(fuzzHere) {
		t.Errorf("%v, %v, want %v", a, err, fuzzHere)
	}
	if !h.mu.TryLock() {
		t.Fatal("the host is locked")
	}
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// fading is a device whose table of addresses has another one in their place when gone is set.
//
//conformance:fake
type fading struct {
	verbs.DriverDevice
	gone  *atomic.Bool
	other verbs.GID
}

func (d fading) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	return fadingContext{c, d.gone, d.other}, err
}

//conformance:fake
type fadingContext struct {
	verbs.DriverContext
	gone  *atomic.Bool
	other verbs.GID
}

func (c fadingContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.DriverContext.GIDTable(port)
	for i := range table {
		if c.gone.Load() {
			table[i].GID = c.other
		}
	}
	return table, err
}

// fade makes a host of a fading device.
func fade(dev *verbs.Device, other verbs.GID) (*Host, *atomic.Bool) {
	gone := new(atomic.Bool)
	return NewHost(driver.NewDevice(fading{driver.Of[verbs.DriverDevice](dev), gone, other})), gone
}

var otherGID = verbs.GIDFromAddr(netip.MustParseAddr("192.0.2.9"))

// A device without addresses has none of its hardware.
func TestHardwareOfADeviceWithoutAddresses(t *testing.T) {
	list, err := memoryHost(t).list()
	if err != nil {
		t.Fatal(err)
	}
	h, gone := fade(list[0], verbs.GID{})
	if _, err := h.Devices(); err != nil {
		t.Fatal(err)
	}
	for _, none := range []bool{false, true} {
		gone.Store(none)
		if gid := h.devices[0].hardware(); gid.IsZero() != none {
			t.Errorf("without addresses %v: %v", none, gid)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// A request to an address that has gone from the table of its device leaves no ID.
func TestRequestToAnAddressThatHasGone(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	ok := FatalOn(t)
	a, err := fab.NewDevice("a", fuzzHere)
	ok(err)
	b, err := fab.NewDevice("b", fuzzThere)
	ok(err)
	client := NewHost(a)
	server, gone := fade(b, otherGID)
	ch := newChannel(server)
	l, err := server.CreateID(ch, PSTCP, nil)
	ok(err)
	ok(l.BindAddr(fuzzPeer))
	ok(l.Listen(1))
	gone.Store(true)
	c := resolvedOn(t, client, PSTCP, true)
	ok(c.Migrate(newChannel(client)))
	ok(c.Connect(t.Context(), &ConnParam{QPNum: 5}))
	m := l.dev.cm
	eventually(t, "a request", func() bool {
		c := m.counters()
		return c.Rx.Of(cmmsg.KindREQ) > 0
	})
	m.deliver()
	l.mu.Lock() // it does not become an ID just now
	if len(ch.ids.all()) != 1 || len(ch.queue) != 0 {
		t.Errorf("%d IDs and %d events on the channel of the listener", len(ch.ids.all()), len(ch.queue))
	}
	l.mu.Unlock()
	gone.Store(false)
	ok(c.Close())
	ok(errors.Join(ch.Close(), server.Close(), client.Close()))
}

// A source address that has gone from the table of its device cannot be used.
func TestSourceAddressThatHasGone(t *testing.T) {
	h := memoryHost(t)
	list, err := h.list()
	if err != nil {
		t.Fatal(err)
	}
	h, gone := fade(list[0], otherGID)
	gone.Store(true)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = id.ResolveAddr(t.Context(), netip.AddrPort{}, fuzzPeer, time.Second)
	if !errors.Is(err, syscall.ENODEV) || !strings.Contains(err.Error(), "GID table") || id.Verbs() != nil {
		t.Errorf("%v, at %v", err, id.Verbs())
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// The program knows the port of an ID when it has asked for the route too: the port stays.
func TestRouteTellsThePort(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	if !id.portUnread {
		t.Error("the port is known before")
	}
	if at := id.Route().SrcAddr; id.portUnread || at != id.local {
		t.Errorf("%v, not read %v", at, id.portUnread)
	}
	id.failed = verbs.EventQPFatal
	init := &verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if err := id.CreateQP(nil, init); err != nil || id.failed != 0 {
		t.Errorf("%v; the new QP has failed: %v", err, id.failed)
	}
	if err := errors.Join(id.DestroyQP(), id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A manager that has not begun, or has ended, takes no datagrams.
func TestDatagramsBeforeAndAfterTheManager(t *testing.T) {
	r := &umad.Received{MAD: make([]byte, 3)}
	new(manager).receive(r)
	h, d := startedHost(t)
	m := d.cm
	for _, closed := range []bool{false, true} {
		m.mu.Lock()
		m.closed = closed
		m.mu.Unlock()
		before := m.counters()
		m.receive(r)
		if taken := m.counters() != before; taken == closed {
			t.Errorf("ended %v: a datagram was taken: %v", closed, taken)
		}
	}
	m.mu.Lock()
	m.closed = false
	m.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
