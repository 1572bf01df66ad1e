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
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmatest"
	"github.com/verbena-rdma/verbena/verbs"
)

// memoryHost is a host at fuzzHere, on a network of its own in memory.
func memoryHost(tb testing.TB) *Host {
	tb.Helper()
	dev, err := rdmatest.New(rdmatest.Config{RealTime: true}).NewDevice("a", fuzzHere)
	if err != nil {
		tb.Fatal(err)
	}
	return NewHost(dev)
}

// boundID is an ID that is bound to the device of a memoryHost.
func boundID(t *testing.T, h *Host) *ID {
	t.Helper()
	id, err := h.CreateID(nil, PSTCP, nil)
	if err == nil {
		err = id.BindAddr(netip.AddrPortFrom(fuzzHere, 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// startedHost is a host whose device runs, without IDs.
func startedHost(t *testing.T) (*Host, *device) {
	t.Helper()
	h := memoryHost(t)
	id := boundID(t, h)
	d := id.dev
	if err := id.Close(); err != nil {
		t.Fatal(err)
	}
	return h, d
}

// Starting a device takes milliseconds. A program that tells its client the port between BindAddr and Listen, as qperf
// does, must not lose the request meanwhile.
func TestBindAddrStartsAllDevices(t *testing.T) {
	h := memoryHost(t)
	id, err := h.CreateID(nil, PSTCP, nil)
	if err == nil {
		err = id.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer id.Close()
	h.mu.Lock()
	defer h.mu.Unlock()
	devices, err := h.choices(PSTCP)
	if err != nil || len(devices) != 1 || !devices[0].up {
		t.Errorf("%v, %v: the device is not started", devices, err)
	}
}

// A Close that fails because of the program's objects can be repeated, and fails until they are destroyed.
func TestHostCloseCanBeTriedAgain(t *testing.T) {
	for name, makeOne := range map[string]func(d *device) (interface{ Close() error }, error){
		"on the device": func(d *device) (interface{ Close() error }, error) { return d.ctx.CreateCompChannel() },
		"in the PD": func(d *device) (interface{ Close() error }, error) {
			pd, err := d.defaultPD()
			if err != nil {
				return nil, err
			}
			return pd.RegMR(make([]byte, 10), verbs.AccessLocalWrite)
		},
		"in the PD, after the XRC domain": func(d *device) (interface{ Close() error }, error) {
			pd, err := d.defaultPD()
			if err != nil {
				return nil, err
			}
			if d.xrcd, err = d.ctx.OpenXRCD(nil); err != nil {
				return nil, err
			}
			return pd.RegMR(make([]byte, 10), verbs.AccessLocalWrite)
		},
		"in the XRC domain": func(d *device) (interface{ Close() error }, error) {
			xrcd, err := d.ctx.OpenXRCD(nil)
			if err != nil {
				return nil, err
			}
			d.xrcd = xrcd
			return xrcd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv})
		},
		"none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			h, d := startedHost(t)
			if makeOne != nil {
				o, err := makeOne(d)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := h.Close(); !errors.Is(err, syscall.EBUSY) {
						t.Errorf("with an object that is left: %v", err)
					}
				}
				id, err := h.CreateID(nil, PSTCP, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := id.ResolveAddr(context.Background(), netip.AddrPort{}, netip.MustParseAddrPort("198.18.0.1:7"),
					time.Second); !errors.Is(err, ErrClosed) {
					t.Errorf("meanwhile: %v", err)
				}
				if err := id.Close(); err != nil {
					t.Error(err)
				}
				if err := o.Close(); err != nil {
					t.Error(err)
				}
			}
			for range 2 {
				if err := h.Close(); err != nil {
					t.Errorf("with nothing left: %v", err)
				}
			}
			if _, err := d.ctx.QueryDevice(); err == nil {
				t.Error("the device is open")
			}
		})
	}
}

// Close waits for the device's goroutines, and they may wait for the host.
func TestHostCloseLetsGoroutinesEnd(t *testing.T) {
	h, d := startedHost(t)
	d.cm.ended.Go(func() {
		<-d.cm.stop
		d.moved(true)
	})
	done := make(chan error)
	go func() { done <- h.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close waits for a goroutine that waits for it")
	}
}

// Close waits for the work that uses a device without the host's lock.
func TestCloseWaitsForWorkOnADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHost()
		d := &device{host: h}
		h.devices = []*device{d}
		begun, goOn, taken := make(chan struct{}), make(chan struct{}), make(chan error)
		go func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			d.aside(func() { close(begun); <-goOn })
		}()
		<-begun
		go func() {
			_, err := h.takeDevices("close")
			taken <- err
		}()
		synctest.Wait()
		select {
		case err := <-taken:
			t.Errorf("the devices were taken during the work: %v", err)
			taken = nil
		default:
		}
		close(goOn)
		if taken != nil {
			if err := <-taken; err != nil {
				t.Error(err)
			}
		}
	})
}

// A host that is closed is no longer among those that tools ask for their connections.
func TestClosedHostIsNotDescribed(t *testing.T) {
	h, _ := startedHost(t)
	calls := 0
	real := h.unpublish
	h.unpublish = func() {
		calls++
		if real != nil {
			real()
		}
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if calls != 1 {
		t.Errorf("withdrawn %d times, want once", calls)
	}
}

// unopenable is a device that cannot be opened.
//
//conformance:fake
type unopenable struct{ verbs.DriverDevice }

func (unopenable) Info() verbs.DriverInfo { return verbs.DriverInfo{Name: "broken"} }

func (unopenable) Open(verbs.DriverContextEvents) (verbs.DriverContext, error) {
	return nil, syscall.EIO
}

// A device that cannot be opened is an error, and not a device.
func TestDeviceThatCannotBeOpened(t *testing.T) {
	h := NewHost(driver.NewDevice(unopenable{}))
	if list, err := h.Devices(); !errors.Is(err, syscall.EIO) || len(list) != 0 {
		t.Errorf("%v, %v, want EIO", list, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// lastWill notes what is done to it.
type lastWill struct {
	set     string
	dropped int
}

func (w *lastWill) Set(mad []byte) { w.set = string(mad) }

func (w *lastWill) Drop() { w.dropped++ }

// The last will of a connection is replaced by its newest datagram, and dropped when there is none any more.
func TestLastWillOfAConnection(t *testing.T) {
	w := &lastWill{}
	id := &cm.ID{LastWill: w}
	m := &manager{}
	m.updateWill(id, []byte("first"))
	if m.updateWill(id, []byte("second")); w.set != "second" || w.dropped != 0 || id.LastWill != w {
		t.Errorf("%+v", w)
	}
	for range 2 { // once more has no effect
		if m.updateWill(id, nil); w.dropped != 1 || id.LastWill != nil {
			t.Errorf("%+v, %v", w, id.LastWill)
		}
	}
}

// A device that was removed is not listed, though an ID still holds it.
func TestDevicesWithoutTheRemovedOne(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	defer id.Close()
	h.list = func() ([]*verbs.Device, error) { return nil, nil } // as verbs.Devices after the removal
	id.dev.remove()
	if list, err := h.Devices(); len(list) != 0 || !errors.Is(err, syscall.ENODEV) {
		t.Errorf("%d devices, %v; want ENODEV", len(list), err)
	}
}

// When the addresses of a device have changed, an ID has the new place of its address in the table. It keeps its place
// if the address is gone, if it is the ID of a request, which has come to one place, and if it has left the device.
func TestPlacesAfterAChangeOfAddresses(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	d, found := id.dev, id.sgid
	old := gidPlace{firstPort, 77}
	for name, c := range map[string]struct {
		change func()
		want   gidPlace
	}{
		"it is at another place": {func() {}, found},
		"it is gone":             {func() { id.local = netip.AddrPortFrom(fuzzThere, 7) }, old},
		"a request":              {func() { id.passive = true }, old},
		"another device":         {func() { id.dev = &device{host: h} }, old},
	} {
		id.mu.Lock()
		local := id.local
		id.sgid = old
		c.change()
		id.mu.Unlock()
		d.moved(false)
		id.mu.Lock()
		if id.sgid != c.want {
			t.Errorf("%s: the place is %v, want %v", name, id.sgid, c.want)
		}
		id.local, id.passive, id.dev, id.sgid = local, false, d, found
		id.mu.Unlock()
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A failed resolution gives up the device that it has found, unless the program has made something on it.
func TestDeviceOfAFailedResolution(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	d, local, wildcard := id.dev, id.local, netip.IPv4Unspecified()
	id.mu.Lock()
	for name, c := range map[string]struct{ make, destroy func() }{
		"a QP":                      {func() { id.qp = new(verbs.QP) }, func() { id.qp = nil }},
		"an SRQ":                    {func() { id.srq = new(verbs.SRQ) }, func() { id.srq = nil }},
		"a group":                   {func() { id.groups = map[netip.Addr]*group{{}: {}} }, func() { id.groups = nil }},
		"an address of the program": {func() { id.wildcard = netip.Addr{} }, func() {}},
	} {
		id.wildcard = wildcard
		c.make()
		if id.unresolve(); id.dev != d || id.local != local {
			t.Errorf("with %s the device is %v, the address %v", name, id.dev, id.local)
		}
		c.destroy()
	}
	id.wildcard = wildcard
	id.unresolve()
	h.mu.Lock()
	if id.dev != nil || id.local.Addr() != wildcard || id.local.Port() != local.Port() || len(d.users) != 0 {
		t.Errorf("the device is %v, the address %v; %d IDs are bound to it", id.dev, id.local, len(d.users))
	}
	h.mu.Unlock()
	id.mu.Unlock()
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// Peers are asked while the connection management runs, and its end waits for that.
func TestVigilOfAManagerThatHasEnded(t *testing.T) {
	h, d := startedHost(t)
	if peers, ok := d.cm.vigilPeers(); !ok || len(peers) != 0 {
		t.Errorf("%d peers, %v", len(peers), ok)
	}
	closed := make(chan error, 1)
	go func() { closed <- h.Close() }()
	select {
	case err := <-closed:
		t.Errorf("the host is closed while peers are asked: %v", err)
		closed <- err
	case <-time.After(20 * time.Millisecond):
	}
	d.cm.ended.Done()
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, ok := d.cm.vigilPeers(); ok {
		t.Error("peers are asked after the end")
		d.cm.ended.Done()
	}
}

// The devices of one port space are not started again because those of another one are.
func TestStartedPortSpacesAreRemembered(t *testing.T) {
	h := memoryHost(t)
	h.mu.Lock()
	h.startAll(PSTCP)
	first := h.started[PSTCP]
	h.startAll(PSUDP)
	if at, ok := h.started[PSTCP]; !ok || at != first || len(h.started) != 2 {
		t.Errorf("started: %v", h.started)
	}
	h.mu.Unlock()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

// The error of a QP whose CQ cannot be made is that of the CQ, and nothing is left of them.
func TestQPWhoseCQCannotBeMade(t *testing.T) {
	h := memoryHost(t)
	id := boundID(t, h)
	for _, c := range []verbs.QPCap{{MaxSendWR: 1 << 22, MaxRecvWR: 1}, {MaxSendWR: 1, MaxRecvWR: 1 << 22}} {
		err := id.CreateQP(nil, &verbs.QPInitAttr{Cap: c})
		if !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "create_cq") {
			t.Errorf("%+v: %v", c, err)
		}
		id.mu.Lock()
		if id.qp != nil || id.sendCQ != nil || id.recvCQ != nil || id.sendChannel != nil || id.recvChannel != nil {
			t.Errorf("%+v: something is left", c)
		}
		id.mu.Unlock()
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}

// A host is described to tools once, whatever it opens later.
func TestHostIsPublishedOnce(t *testing.T) {
	calls := 0
	h := NewHost()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unpublish = func() { calls++ }
	h.publish()
	if h.unpublish(); calls != 1 {
		t.Error("it was published again")
	}
}

// An ID on a channel is one of the channel's host.
func TestIDOfTheHostOfItsChannel(t *testing.T) {
	ch := newChannel(NewHost())
	id, err := CreateID(ch, PSTCP, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id.host != ch.host || id.Channel() != ch {
		t.Error("the ID is on another host or channel")
	}
	if err := errors.Join(id.Close(), ch.Close()); err != nil {
		t.Error(err)
	}
}

// Devices that could not be listed are not remembered as started.
func TestDevicesThatCouldNotBeListedAreNotStarted(t *testing.T) {
	h := NewHost()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.startAll(PSTCP); len(h.started) != 0 {
		t.Errorf("started: %v", h.started)
	}
}

// The counters are those of the device that was asked for.
func TestCountersOfTheSecondDevice(t *testing.T) {
	fab := rdmatest.New(rdmatest.Config{RealTime: true})
	var devices []*verbs.Device
	for _, a := range []netip.Addr{fuzzThere, fuzzHere} {
		dev, err := fab.NewDevice(a.String(), a)
		if err != nil {
			t.Fatal(err)
		}
		devices = append(devices, dev)
	}
	h := NewHost(devices...)
	id := boundID(t, h)
	list, err := h.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{0, 1} {
		if c := h.Counters(list[i]); c.IDs != want {
			t.Errorf("device %d: %d IDs, want %d", i, c.IDs, want)
		}
	}
	if err := errors.Join(id.Close(), h.Close()); err != nil {
		t.Error(err)
	}
}
