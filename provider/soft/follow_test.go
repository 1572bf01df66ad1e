package soft

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/mem"
	"github.com/verbena-rdma/verbena/verbs"
)

// portEvents collects the events of a port.
type portEvents struct {
	mu   sync.Mutex
	list []verbs.EventType
}

func (p *portEvents) PortEvent(t verbs.EventType, port uint8) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if port == 1 {
		p.list = append(p.list, t)
	}
}

func (p *portEvents) DeviceEvent(t verbs.EventType) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, t)
}

func (p *portEvents) take() []verbs.EventType {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.list
	p.list = nil
	return l
}

// watched is a link that records its addresses.
type watched struct {
	link.Link
	addrs []netip.Addr
	bad   netip.Addr // cannot be bound
}

func (w *watched) SetAddrs(addrs []netip.Addr) error {
	if slices.Contains(addrs, w.bad) {
		return fail(eaddrnotavail, "not yet")
	}
	w.addrs = addrs
	return nil
}

func TestV_PORT_02_V_AE_23_DeviceFollowsItsInterface(t *testing.T) {
	now := ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.1")}
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	d.ifaceState = func(*spec) ifaceState { return now }
	w := &watched{bad: netip.MustParseAddr("2001:db8::bad")}
	d.cfg.links.Open = func(a []netip.Addr, ports int) (link.Link, error) {
		if slices.Contains(a, w.bad) {
			return nil, fail(eaddrnotavail, "not yet")
		}
		l, err := mem.NewFabric(mem.Config{}).Open(a, ports)
		w.Link, w.addrs = l, a
		return w, err
	}
	var up portEvents
	ctx, err := d.Open(&up)
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	change := func(f ifaceState, bound []netip.Addr, want ...verbs.EventType) {
		t.Helper()
		now = f
		d.refresh()
		if got := up.take(); !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		if w.Link != nil && !slices.Equal(w.addrs, bound) {
			t.Errorf("bound to %v, want %v", w.addrs, bound)
		}
	}
	state := func() verbs.PortState {
		attr, err := ctx.QueryPort(1)
		if err != nil {
			t.Fatal(err)
		}
		return attr.State
	}
	change(now, nil)
	now.addrs = addrs("192.0.2.1", "2001:db8::bad", "192.0.2.2")
	change(now, nil, verbs.EventGIDChange)
	qp := openQP(t, ctx)
	if err := qp.Modify(&verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1},
		verbs.QPAttrState|verbs.QPAttrPKeyIndex|verbs.QPAttrPort|verbs.QPAttrAccessFlags); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.addrs, addrs("192.0.2.1", "192.0.2.2")) { // without the address that is not usable yet
		t.Errorf("opened at %v", w.addrs)
	}
	w.bad = netip.Addr{}
	change(now, addrs("192.0.2.1", "192.0.2.2", "2001:db8::bad"))
	now.addrs = addrs("192.0.2.2", "192.0.2.3")
	change(now, addrs("192.0.2.2", "192.0.2.3"), verbs.EventGIDChange)
	now.up = false
	change(now, addrs("192.0.2.2", "192.0.2.3"), verbs.EventPortErr) // V-AE-23
	if s := state(); s != verbs.PortDown {
		t.Errorf("port is %v", s)
	}
	if attr, _, err := qp.Query(0); attr.QPState != verbs.QPSInit || err != nil {
		t.Errorf("the QP is in %v, %v", attr.QPState, err)
	}
	now.up = true
	change(now, addrs("192.0.2.2", "192.0.2.3"), verbs.EventPortActive) // V-AE-22
	if s := state(); s != verbs.PortActive {
		t.Errorf("port is %v", s)
	}
	now.speed = 1000 // unknown before
	change(now, addrs("192.0.2.2", "192.0.2.3"))
	now.speed = 25000
	change(now, addrs("192.0.2.2", "192.0.2.3"), verbs.EventDeviceSpeedChange)
	now.mtu = 9000
	change(now, addrs("192.0.2.2", "192.0.2.3"))
	if attr, _ := ctx.QueryPort(1); attr.ActiveMTU != verbs.MTU4096 {
		t.Errorf("active MTU %v", attr.ActiveMTU)
	}
	now.addrs = addrs("198.51.100.1") // all are new, as after a move to another network
	change(now, now.addrs, verbs.EventGIDChange)
	was := now.addrs
	now.addrs = nil
	change(now, was, verbs.EventGIDChange)
	now.addrs = addrs("198.51.100.2", "198.51.100.3")
	change(now, now.addrs, verbs.EventGIDChange)
}

// openQP makes the first QP, which opens the link.
func openQP(t *testing.T, ctx verbs.DriverContext) *verbs.QP {
	t.Helper()
	vctx := made(driver.NewDevice(ctx.(*deviceContext).dev).Open())(t)
	pd, cq := made(vctx.AllocPD())(t), made(vctx.CreateCQ(1, nil))(t)
	qp := made(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq}))(t)
	t.Cleanup(func() { _ = errors.Join(qp.Close(), cq.Close(), pd.Close(), vctx.Close()) })
	return qp
}

// TestChangeDuringOpen: a device notices a change of its interface that comes right after its first look at it.
func TestChangeDuringOpen(t *testing.T) {
	before := ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.1")}
	after := before
	after.addrs = addrs("192.0.2.2")
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	var looks atomic.Int32
	noticed := make(chan struct{})
	d.ifaceState = func(*spec) ifaceState {
		if looks.Add(1) > 1 {
			return after
		}
		go func() {
			monitored.changed()
			close(noticed)
		}()
		select {
		case <-noticed: // the device is not among those that follow their interfaces
		case <-time.After(50 * time.Millisecond):
		}
		return before
	}
	ctx, err := d.Open(&portEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	<-noticed
	if got := d.at(1).addrs; !slices.Equal(got, after.addrs) {
		t.Errorf("addresses %v, want %v", got, after.addrs)
	}
}

// TestChangeBeforeTheLinkOpens: the link is opened at the addresses that the interface has by then.
func TestChangeBeforeTheLinkOpens(t *testing.T) {
	var now atomic.Pointer[ifaceState]
	now.Store(&ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.1")})
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	d.ifaceState = func(*spec) ifaceState { return *now.Load() }
	var opened []netip.Addr
	d.cfg.links.Open = func(a []netip.Addr, ports int) (link.Link, error) {
		opened = a
		return mem.NewFabric(mem.Config{}).Open(a, ports)
	}
	ctx, err := d.Open(&portEvents{})
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	d.bound.mu.Lock() // as a change of addresses that has found no link yet
	done := make(chan struct{})
	go func() {
		defer close(done)
		openQP(t, ctx)
	}()
	time.Sleep(50 * time.Millisecond) // the other goroutine waits for the lock
	now.Store(&ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.2")})
	d.mu.Lock()
	d.ports[0].Store(d.look(1, d.at(1)))
	d.mu.Unlock()
	d.bound.mu.Unlock()
	<-done
	if want := addrs("192.0.2.2"); !slices.Equal(opened, want) {
		t.Errorf("opened at %v, want %v", opened, want)
	}
}

// TestV_AE_10_V_AE_25_InterfaceRemoved: all contexts receive the fatal event when the device's interface is removed,
// and PORT_ACTIVE when one with that name is added.
func TestV_AE_10_V_AE_25_InterfaceRemoved(t *testing.T) {
	there := ifaceState{iface: "x0", up: true, mtu: 1500, addrs: addrs("192.0.2.1")}
	now := there
	d := newDevice(spec{name: "vrb_x", iface: "x0"})
	d.ifaceState = func(*spec) ifaceState { return now }
	var up [2]portEvents
	for i := range up {
		ctx, err := d.Open(&up[i])
		if err != nil {
			t.Fatal(err)
		}
		defer ctx.Close()
	}
	change := func(f ifaceState, want ...verbs.EventType) {
		t.Helper()
		now = f
		for range 2 { // the second time nothing has changed
			d.refresh()
			for i := range up {
				if got := up[i].take(); !slices.Equal(got, want) {
					t.Errorf("events %v, want %v", got, want)
				}
			}
			want = nil
		}
	}
	change(ifaceState{iface: "x0", gone: true}, verbs.EventGIDChange, verbs.EventPortErr, verbs.EventDeviceFatal)
	change(there, verbs.EventGIDChange, verbs.EventPortActive)
	down := there
	down.up = false
	change(down, verbs.EventPortErr)
	change(ifaceState{iface: "x0", gone: true}, verbs.EventGIDChange, verbs.EventDeviceFatal)
}

// TestV_AE_25_OnlyANamedInterfaceIsRemoved: only the device of a named interface reports that the interface does not
// exist.
func TestV_AE_25_OnlyANamedInterfaceIsRemoved(t *testing.T) {
	if f := newDevice(spec{name: "vrb_x", iface: "no-such-if"}).spec.systemState(); !f.gone || f.up {
		t.Errorf("%+v", f)
	}
	if f := newDevice(spec{name: "x", addrs: addrs("192.0.2.77")}).spec.systemState(); f.gone || f.up {
		t.Errorf("a device of addresses: %+v", f)
	}
}

func made[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
