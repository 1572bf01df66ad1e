package soft

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/link"
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
	ifaceState func() ifaceState
	pkeys      []*pkeyTable // of each port

	port atomic.Pointer[portInfo] // set while a context is open; replaced with mu held

	life sync.Mutex // serialises Open and close; taken before mu

	mu sync.Mutex // guards contexts, eng, regions, lastCtx and changes of port
	// +checklocks:mu
	contexts []*deviceContext
	// +checklocks:mu
	eng *engine.Engine
	// +checklocks:mu
	regions *mr.Table

	bound   binding
	domains domains
	inline  sync.RWMutex  // read-locked while data is copied from regions
	lastPD  atomic.Uint32 // lastPD, lastCQ, lastSRQ and lastCtx are object numbers for tools
	lastCQ  atomic.Uint32
	lastSRQ atomic.Uint32
	// +checklocks:mu
	lastCtx    uint32
	violations violations
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
	d.ifaceState = d.systemState
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
	if len(d.contexts) == 0 {
		d.port.Store(d.look(nil))
		d.regions = mr.NewTable(maxObjects, d.keys())
		d.eng = engine.New(engine.Config{
			Open: d.openLink, Started: d.startCapture, PeerDied: d.watchers.peerDied, Now: d.cfg.Clock, Manual: d.cfg.Manual,
			FirstQPN: d.cfg.FirstQPN, Ports: d,
			MaxQPs: maxQP, MaxMcastGroups: mcastGroups, MaxMcastQPs: mcastQPs,
		})
		d.frames = raw.NewDevice(raw.Config{Regions: d.regions, Memory: &d.inline, Now: d.clock(), Manual: d.cfg.Manual})
		if !d.virtual {
			monitored.add(d)
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
	p := d.port.Load()
	if len(p.addrs) == 0 {
		return nil, fail(eaddrnotavail, "interface %s: no address", p.iface)
	}
	open := d.cfg.links.Open
	if open == nil {
		open = func(addrs []netip.Addr, ports int) (link.Link, error) {
			l, err := udp.Open(udp.Config{Interface: p.iface, Addrs: addrs, Ports: ports, Shared: true, Lost: d.lost})
			if err != nil {
				return nil, err
			}
			l, faulty, err := withFaults(l)
			if faulty || err != nil {
				return l, err // with faults, no packet goes through shared memory
			}
			return withShm(l, addrs), nil
		}
	}
	return d.bound.open(p.addrs, func(addrs []netip.Addr) (link.Link, error) { return open(addrs, d.cfg.shards()) })
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

// refresh reads the state of the network interface and reports the events of its changes.
func (d *device) refresh() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.eng == nil {
		return
	}
	old := d.port.Load()
	p := d.look(old)
	d.port.Store(p)
	d.bound.follow(p.addrs)
	if !slices.Equal(old.table.gids, p.table.gids) {
		d.raise(verbs.EventGIDChange, 1)
	}
	switch {
	case p.up && !old.up:
		d.raise(verbs.EventPortActive, 1)
	case old.up && !p.up:
		d.raise(verbs.EventPortErr, 1)
	}
	if p.speed != old.speed && p.speed != 0 && old.speed != 0 {
		d.raise(verbs.EventDeviceSpeedChange, 1)
	}
	if p.gone && !old.gone {
		for _, c := range d.contexts {
			c.up.DeviceEvent(verbs.EventDeviceFatal)
		}
	}
}

// lost reports a fatal error to every context. The link calls it when verbena serve, which shared an address of the
// device, has ended.
func (d *device) lost(error) {
	d.mu.Lock()
	defer d.mu.Unlock()
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
