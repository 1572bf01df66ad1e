package rdmacm

import (
	"net/netip"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/gsi"
	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// device is an RDMA device of a host.
type device struct {
	host *Host
	vdev *verbs.Device
	ctx  *verbs.Context
	attr verbs.DeviceAttr

	iwarp   bool
	streams bool // an iWARP device of ours: connections are over TCP, and there is no manager
	kernel  bool // an adapter: the kernel manages its connections, and there is no manager

	// Guarded by Host.mu. IDs that are bound to the device read cm without it: they were bound after start.
	cm       *manager         // nil before start, of an iWARP device, and of an adapter
	up       bool             // start has succeeded
	busy     int              // calls of aside
	starting bool             // a goroutine starts the device
	users    map[*ID]struct{} // IDs that are bound to the device
	gone     bool             // the hardware reported a fatal error
	pd       *verbs.PD
	xrcd     *verbs.XRCD

	async   *verbs.Context // for the device's events: the program may take those of ctx
	watcher sync.WaitGroup // takes them
}

// newDevice opens a device. Host.mu is held, which the analyzer cannot see.
//
// +checklocksignore
func newDevice(h *Host, dev *verbs.Device) (*device, error) {
	kernel := gsi.Refused(dev) != nil
	if kernel && h.kernel == nil {
		c, err := h.openKernel()
		if err != nil {
			return nil, &Error{Op: "get_devices", Obj: dev.Name(), Errno: errnoOf(err), Err: err}
		}
		_ = c.Close()
	}
	vctx, err := dev.Open()
	if err != nil {
		return nil, err
	}
	attr, err := vctx.QueryDevice()
	if err != nil {
		_ = vctx.Close()
		return nil, err
	}
	iwarp := dev.TransportType() == verbs.TransportIWARP
	return &device{host: h, vdev: dev, ctx: vctx, attr: attr, users: map[*ID]struct{}{},
		iwarp: iwarp, streams: iwarp && !kernel, kernel: kernel}, nil
}

// firstPort is the only port of most devices.
const firstPort = 1

// gidPlace is the place of an address in the GID tables of a device.
type gidPlace struct {
	port  uint8
	index int
}

// noPlace is the place of an address that the device does not have.
var noPlace = gidPlace{firstPort, -1}

// find finds a local address in the GID tables. If it is there twice, an entry of the zone's interface counts more than
// others, and then the last one: index 0 may stand for no address.
func (d *device) find(a netip.Addr) gidPlace { return d.findOn(0, a) }

// findOn is find that prefers the table of a port.
func (d *device) findOn(port uint8, a netip.Addr) gidPlace {
	table, err := d.ctx.QueryGIDTable()
	found := noPlace
	if err != nil || !a.IsValid() {
		return found
	}
	if d.kernel && d.iwarp { // its GID is made of its MAC address
		if on := d.vdev.Interface(); on != "" && (on == a.Zone() || on == sysroute.Interface(a.WithZone(""))) {
			return gidPlace{firstPort, 0}
		}
		return found
	}
	gid, best := verbs.GIDFromAddr(a.WithZone("")), 0
	for _, e := range table {
		rank := 1
		if e.Port == port {
			rank++
		}
		if e.NetDev != "" && e.NetDev == a.Zone() {
			rank += 2
		}
		if e.GID == gid && rank >= best {
			found, best = gidPlace{e.Port, e.Index}, rank
		}
	}
	return found
}

// ownerOf finds the device that has a local address; nil if none has it. Several may have the same link-local address:
// the one of the zone's interface counts, else the first.
func ownerOf(devices []*device, local netip.Addr) (owner *device, sgid gidPlace) {
	sgid = noPlace
	for _, d := range devices {
		at := d.find(local)
		if d.gone || at == noPlace {
			continue
		}
		if zone := local.Zone(); zone == "" || d.netDev(at) == zone {
			return d, at
		}
		if owner == nil {
			owner, sgid = d, at
		}
	}
	return owner, sgid
}

// portOf is the port of a local address, the first one if no port has it.
func (d *device) portOf(a netip.Addr) uint8 {
	if d.attr.PhysPortCnt <= firstPort {
		return firstPort
	}
	return d.find(a).port
}

// mtu is the largest path MTU that a port can have now.
func (d *device) mtu(port uint8) (verbs.MTU, error) {
	p, err := d.ctx.QueryPort(port)
	return p.ActiveMTU, err
}

// mtuCode is mtu of the port of a local address, for the machine: the largest code if it is not known.
func (d *device) mtuCode(local netip.Addr) uint8 {
	if m, err := d.mtu(d.portOf(local)); err == nil {
		return uint8(m)
	}
	return uint8(verbs.MTU4096)
}

// onInterface reports whether the device sends the packets of a local address through a network interface, so that
// the system's routes are its routes.
func (d *device) onInterface(p gidPlace) bool { return d.netDev(p) != "" }

// netDev is the network interface of a GID table entry; empty if there is none.
func (d *device) netDev(p gidPlace) string {
	e, err := d.ctx.QueryGIDEntry(p.port, p.index)
	if err != nil {
		return ""
	}
	return e.NetDev
}

// defaultPD is the device's PD for IDs without another one. Host.mu is held.
func (d *device) defaultPD() (pd *verbs.PD, err error) {
	if d.pd == nil {
		d.pd, err = d.ctx.AllocPD()
	}
	return d.pd, err
}

// start starts the connection management, once. Host.mu is held, which the analyzer
// cannot see: callers know the host by another name. It is free meanwhile: see aside.
//
// +checklocksignore
func (d *device) start() error {
	for d.starting {
		d.host.idle.Wait()
	}
	switch {
	case d.gone:
		return &Error{Op: "start", Errno: syscall.ENODEV, Obj: d.vdev.Name(), Detail: deviceGone}
	case d.up:
		return nil
	case d.kernel:
		if err := d.host.startKernel(); err != nil {
			return err
		}
	case !d.streams:
		if err := d.startManager(); err != nil {
			return err
		}
	}
	d.up = true
	d.watch()
	d.host.publish()
	return nil
}

// startManager opens QP 1. The sockets of an address may have to come from another process.
//
// +checklocksignore
func (d *device) startManager() (err error) {
	d.starting = true
	var m *manager
	d.aside(func() { m, err = newManager(d) })
	d.cm, d.starting = m, false // before those that wait for it run
	return err
}

// aside calls f without Host.mu, which the caller holds: f may wait for another process, which may be stopped. The
// device stays open meanwhile.
//
// +checklocksignore
func (d *device) aside(f func()) {
	d.busy++
	d.host.mu.Unlock()
	f()
	d.host.mu.Lock()
	d.busy--
	d.host.idle.Broadcast()
}

// close ends the connection management and closes the device. No IDs are left and the host has forgotten the device.
// After an error it can be called again. Host.mu is not held: close waits for goroutines that may wait for it.
func (d *device) close() error {
	if d.streams || d.kernel {
		d.unwatch()
	}
	if d.cm != nil {
		d.cm.end()
		if err := d.cm.port.Close(); err != nil {
			return err
		}
	}
	if d.xrcd != nil {
		if err := driver.Destroyed(d.xrcd.Close()); err != nil {
			return err
		}
		d.xrcd = nil
	}
	if d.pd != nil {
		if err := driver.Destroyed(d.pd.Close()); err != nil {
			return err
		}
		d.pd = nil
	}
	return d.ctx.Close()
}
