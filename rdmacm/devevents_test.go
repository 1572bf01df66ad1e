package rdmacm_test

import (
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/rdmacm"
	"github.com/verbena-rdma/verbena/verbs"
)

// eventful is a device whose events the test raises, at the place where a driver does.
//
//conformance:device
type eventful struct {
	verbs.DriverDevice

	mu   sync.Mutex
	ups  []verbs.DriverContextEvents // of the open contexts
	lost []verbs.GID                 // not in the GID table any more
}

// eventfulContext has a GID table that changes.
type eventfulContext struct {
	verbs.DriverContext
	of *eventful
}

func (d *eventful) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	c, err := d.DriverDevice.Open(up)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ups = append(d.ups, up)
	return eventfulContext{c, d}, nil
}

func (c eventfulContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	table, err := c.DriverContext.GIDTable(port)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(table), func(e verbs.GIDEntry) bool {
		return slices.Contains(c.of.lost, e.GID)
	}), err
}

func (d *eventful) raise(f func(up verbs.DriverContextEvents)) {
	d.mu.Lock()
	ups := slices.Clone(d.ups)
	d.mu.Unlock()
	for _, up := range ups {
		f(up)
	}
}

// eventfulHost makes host b one with such a device.
func (w *world) eventfulHost() *eventful {
	w.Helper()
	dev := must(w.fab.NewDevice("e", netip.MustParseAddr("198.18.0.3"), netip.MustParseAddr("198.18.0.4")))(w)
	d := &eventful{DriverDevice: driver.Of[verbs.DriverDevice](dev)}
	if d.DriverDevice == nil {
		w.Fatal("no driver's device")
	}
	w.ok(w.b.Close())
	w.b = rdmacm.NewHost(driver.NewDevice(d))
	return d
}

// The fatal error of a device becomes DEVICE_REMOVAL of its IDs.
func TestC_EVT_23_FatalErrorOfTheDevice(t *testing.T) {
	in(t, func(w *world) {
		d := w.eventfulHost()
		addr := netip.MustParseAddr("198.18.0.3")
		l := w.listen(at(addr, port), 0)
		c, s := w.connected(l, at(addr, port))
		d.raise(func(up verbs.DriverContextEvents) { up.DeviceEvent(verbs.EventDeviceFatal) })
		for range 2 { // l and s, in whatever order
			l.expect(rdmacm.EventDeviceRemoval)
		}
		l.none()
		w.errno(s.Disconnect(bg), syscall.EINVAL)
		s.closeID()
		l.close()
		c.close()
	})
}

// A change of the GID table becomes ADDR_CHANGE of the IDs whose address has gone, and of all IDs if the hardware's
// address has changed. The IDs work as before.
func TestC_EVT_26_GIDChangeOfTheDevice(t *testing.T) {
	in(t, func(w *world) {
		d := w.eventfulHost()
		first, second := netip.MustParseAddr("198.18.0.3"), netip.MustParseAddr("198.18.0.4")
		l := w.listen(at(first, port), 0)
		other := w.listen(at(second, port), 0)
		c, s := w.connected(l, at(first, port))
		change := func(lost ...verbs.GID) {
			d.mu.Lock()
			d.lost = lost
			d.mu.Unlock()
			d.raise(func(up verbs.DriverContextEvents) { up.PortEvent(verbs.EventGIDChange, 1) })
		}
		change() // nothing is missing
		l.none()
		change(verbs.GIDFromAddr(second))
		other.expect(rdmacm.EventAddrChange)
		l.none()
		table := must(l.Verbs().QueryGIDTable())(w)
		change(table[0].GID) // the entry that is derived from the hardware's address
		for range 2 {
			l.expect(rdmacm.EventAddrChange)
		}
		w.ok(c.Disconnect(bg))
		s.expect(rdmacm.EventDisconnected)
		c.expect(rdmacm.EventDisconnected)
		time.Sleep(time.Minute) // TIMEWAIT
		s.closeID()
		other.close()
		c.close()
		l.close()
	})
}
