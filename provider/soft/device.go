package soft

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/link/fault"
	"github.com/verbena-rdma/verbena/internal/link/udp"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

const eaddrnotavail = syscall.EADDRNOTAVAIL

// device is a DriverDevice. All contexts of it share its engine and its tables, which live from the first context to
// the last.
type device struct {
	spec       spec
	cfg        Config
	guid       verbs.GUID
	virtual    bool // its link is not of this machine's interfaces
	ifaceState func(port *spec) ifaceState
	pkeys      []*pkeyTable // of each port

	ports []atomic.Pointer[portInfo] // set while a context is open; replaced with mu held

	life sync.Mutex // serialises Open and close; taken before mu

	mu sync.Mutex // guards contexts, eng, regions, down, lastCtx and changes of port
	// +checklocks:mu
	contexts []*deviceContext
	// +checklocks:mu
	eng *engine.Engine
	// +checklocks:mu
	regions *mr.Table
	// +checklocks:mu
	down bool // lost was called for eng

	bound   binding
	domains domains
	inline  sync.RWMutex  // read-locked while data is copied from regions
	lastPD  atomic.Uint32 // lastPD, lastCQ, lastSRQ and lastCtx are object numbers for tools
	lastCQ  atomic.Uint32
	lastSRQ atomic.Uint32
	// +checklocks:mu
	lastCtx    uint32
	violations []violations // of each port
	dm         dmBudget
	capture    capture
	frames     *raw.Device // of RAW_PACKET QPs; lives as long as eng
	rawUse     rawUse
	objects    objects
	watchers   watchers
	streams    streams // of a device of provider/iwarp
}

func newDevice(s spec) *device {
	d := &device{spec: s, guid: guidOf(&s)}
	d.domains.name = s.name
	d.capture.streams = &d.streams
	for i := range s.ports() {
		var keys []uint16
		if i < len(s.pkeys) {
			keys = s.pkeys[i]
		}
		d.pkeys = append(d.pkeys, newPKeyTable(keys))
	}
	d.ifaceState = (*spec).systemState
	d.ports = make([]atomic.Pointer[portInfo], s.ports())
	d.violations = make([]violations, s.ports())
	return d
}

// Info returns the name and the identity of the device.
func (d *device) Info() verbs.DriverInfo {
	info := verbs.DriverInfo{
		Name: d.spec.name, GUID: d.guid, NodeType: verbs.NodeCA, Transport: verbs.TransportIB, Interface: d.spec.iface,
	}
	if d.spec.streams {
		info.NodeType, info.Transport = verbs.NodeRNIC, verbs.TransportIWARP
	}
	return info
}

// keys returns the generator of memory keys.
func (d *device) keys() func() uint32 {
	if d.cfg.FirstQPN != 0 {
		return mr.Counted()
	}
	return mr.Unguessable()
}

// Open makes a context.
func (d *device) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.contexts) > 0 && d.down {
		return nil, fail(syscall.ENETDOWN, "verbena serve, which shared an address of the device, has ended; close the "+
			"contexts of before, and open the device again")
	}
	if len(d.contexts) == 0 {
		d.down = false
		d.violations = make([]violations, len(d.ports))
		if !d.virtual {
			monitored.add(d) // before the first look: a change after it is looked at when Open has returned
		}
		for i := range d.ports {
			d.ports[i].Store(d.look(uint8(i+1), nil))
		}
		d.regions = mr.NewTable(maxObjects, d.keys())
		d.eng = engine.New(engine.Config{
			Open: d.openLink, Started: d.startCapture, PeerDied: d.watchers.peerDied, Now: d.cfg.Clock, Manual: d.cfg.Manual,
			FirstQPN: d.cfg.FirstQPN, Ports: d,
			MaxQPs: maxQP, MaxMcastGroups: mcastGroups, MaxMcastQPs: mcastQPs,
		})
		d.streams.ResetCounters()
		d.frames = raw.NewDevice(raw.Config{Regions: d.regions, Memory: &d.inline, Now: d.clock(), Manual: d.cfg.Manual})
		if !d.virtual {
			controlled.add(d)
		}
	}
	d.lastCtx++
	c := &deviceContext{dev: d, num: d.lastCtx, eng: d.eng, regions: d.regions, frames: d.frames, up: up}
	d.contexts = append(d.contexts, c)
	return c, nil
}

// openLink opens the link for the engine's first QP.
func (d *device) openLink() (link.Link, error) {
	open := d.cfg.links.Open
	if open == nil {
		open = d.openSockets
	}
	return d.bound.open(d.allAddrs, func(addrs []netip.Addr) (link.Link, error) {
		if len(addrs) == 0 {
			return nil, fail(eaddrnotavail, "interface %s: no address", d.at(1).iface)
		}
		return open(addrs, d.cfg.shards())
	})
}

// openSockets opens the link of a device of this machine.
func (d *device) openSockets(addrs []netip.Addr, ports int) (link.Link, error) {
	faults, err := faultsAsked()
	if err != nil {
		return nil, err
	}
	l, err := udp.Open(udp.Config{Interface: d.at(1).iface, Addrs: addrs, Ports: ports, Shared: true, Lost: d.lost,
		Screen: cm.NewForeign})
	switch {
	case err != nil:
		return nil, err
	case faults != nil:
		return fault.Wrap(l, *faults), nil // no packet goes through shared memory
	}
	iface := ""
	if len(d.spec.interfaces()) < 2 {
		iface = d.at(1).iface
	}
	return withShm(l, addrs, iface), nil
}

// close closes a context, and with the last one the engine.
func (d *device) close(c *deviceContext) error {
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	i := slices.Index(d.contexts, c)
	if i < 0 {
		d.mu.Unlock()
		return nil
	}
	d.contexts = slices.Delete(d.contexts, i, i+1)
	last := len(d.contexts) == 0
	eng := d.eng
	if last {
		d.eng = nil
	}
	d.mu.Unlock()
	if !last {
		return nil
	}
	if !d.virtual {
		defer controlled.remove(d)()
		monitored.remove(d)
	}
	d.bound.unset()
	err := eng.Close()
	d.capture.stop()
	return verbsError("closing the link", err)
}

// running returns the engine, nil if no context is open.
func (d *device) running() *engine.Engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.eng
}

// at returns the state of a port, 1 to the number of ports; nil before the device is opened.
func (d *device) at(port uint8) *portInfo { return d.ports[port-1].Load() }

// allAddrs returns the addresses of all ports.
func (d *device) allAddrs() (all []netip.Addr) {
	for i := range d.ports {
		all = append(all, d.ports[i].Load().addrs...)
	}
	return all
}

// PortOf returns the port that has a local address, 1 if none has; see transport.Ports.
func (d *device) PortOf(local netip.Addr) uint8 {
	for i := 1; i < len(d.ports); i++ {
		if d.ports[i].Load().has(local) {
			return uint8(i + 1)
		}
	}
	return 1
}

// refresh reads the state of the network interfaces and reports the events of its changes.
func (d *device) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.eng == nil {
		return
	}
	gone, was := true, true
	olds, ports := make([]*portInfo, len(d.ports)), make([]*portInfo, len(d.ports))
	for i := range d.ports {
		olds[i] = d.ports[i].Load()
		ports[i] = d.look(uint8(i+1), olds[i])
		gone, was = gone && ports[i].gone, was && olds[i].gone
	}
	d.followMTU() // before programs see the new MTU of a port: it limits their next message
	for i, p := range ports {
		d.ports[i].Store(p)
	}
	if ports[0].ifindex != olds[0].ifindex { // the link is of the interface of port 1
		d.bound.renew()
	}
	d.bound.follow(d.allAddrs())
	for i := range d.ports {
		d.reportChanges(olds[i], d.ports[i].Load())
	}
	if gone && !was {
		for _, c := range d.contexts {
			c.up.DeviceEvent(verbs.EventDeviceFatal)
		}
	}
}

// reportChanges raises the events of the changes of a port.
//
// +checklocks:d.mu
func (d *device) reportChanges(old, p *portInfo) {
	if !slices.Equal(old.table.gids, p.table.gids) {
		d.raise(verbs.EventGIDChange, p.num)
	}
	switch {
	case p.up && !old.up:
		d.raise(verbs.EventPortActive, p.num)
	case old.up && !p.up:
		d.raise(verbs.EventPortErr, p.num)
	}
	if p.speed != old.speed && p.speed != 0 && old.speed != 0 {
		d.raise(verbs.EventDeviceSpeedChange, p.num)
	}
}

// lost reports a fatal error to every context. The link calls it when verbena serve, which shared an address of the
// device, has ended. The engine has this link until its last context is closed.
func (d *device) lost(error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.down = true
	for _, c := range d.contexts {
		c.up.DeviceEvent(verbs.EventDeviceFatal)
	}
}

// raise reports an event of a port to every context.
//
// +checklocks:d.mu
func (d *device) raise(t verbs.EventType, port uint8) {
	for _, c := range d.contexts {
		c.up.PortEvent(t, port)
	}
}
