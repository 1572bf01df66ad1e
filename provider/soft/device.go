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

// device is a DeviceDriver. All contexts of it share its engine and its tables, which live from the first context to
// the last.
type device struct {
	spec    spec
	cfg     Config
	guid    verbs.GUID
	virtual bool // its link is not of this machine's interfaces
	facts   func() facts

	port atomic.Pointer[portInfo] // there while a context is open

	life sync.Mutex // serialises Open and close; taken before mu

	mu       sync.Mutex // guards what follows, and changes of port
	contexts []*context
	eng      *engine.Engine
	regions  *mr.Table

	bound      binding
	domains    domains
	inline     sync.RWMutex  // read-held while inline data is copied from regions
	lastPD     atomic.Uint32 // these number objects for people
	lastCQ     atomic.Uint32
	lastSRQ    atomic.Uint32
	lastCtx    uint32
	violations violations
	dm         dmBudget
	capture    capture
	frames     *raw.Device // of RAW_PACKET QPs; lives as long as eng
	rawUse     rawUse
	census     census
	watchers   watchers
}

func newDevice(s spec) *device {
	d := &device{spec: s, guid: guidOf(&s)}
	d.domains.name = s.name
	d.facts = d.systemFacts
	return d
}

// Info describes the device.
func (d *device) Info() verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Name: d.spec.name, GUID: d.guid, NodeType: verbs.NodeCA, Transport: verbs.TransportIB, Interface: d.spec.iface,
	}
}

// Open makes a context.
func (d *device) Open(up verbs.ContextUpcalls) (verbs.ContextDriver, error) {
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.contexts) == 0 {
		d.port.Store(d.look(nil))
		d.regions = mr.NewTable(maxObjects)
		d.eng = engine.New(engine.Config{
			Open: d.openLink, Started: d.startCapture, PeerDied: d.watchers.peerDied, Now: d.cfg.Clock, Manual: d.cfg.Manual, FirstQPN: d.cfg.FirstQPN,
			MaxQPs: maxQP, MaxMcastGroups: mcastGroups, MaxMcastQPs: mcastQPs,
		})
		d.frames = raw.NewDevice(raw.Config{Regions: d.regions, Memory: &d.inline, Now: d.clock(), Manual: d.cfg.Manual})
		if !d.virtual {
			monitored.add(d)
			controlled.add(d)
		}
	}
	d.lastCtx++
	c := &context{dev: d, num: d.lastCtx, eng: d.eng, regions: d.regions, frames: d.frames, up: up}
	d.contexts = append(d.contexts, c)
	return c, nil
}

// openLink opens the link for the engine's first QP.
func (d *device) openLink() (link.Link, error) {
	p := d.port.Load()
	if len(p.addrs) == 0 {
		return nil, fail(eaddrnotavail, "the interface %s has no address", p.iface)
	}
	open := d.cfg.Link
	if open == nil {
		open = func(addrs []netip.Addr, ports int) (link.Link, error) {
			l, err := udp.Open(udp.Config{Interface: p.iface, Addrs: addrs, Ports: ports, Shared: true})
			if err != nil {
				return nil, err
			}
			l, faulty, err := withFaults(l)
			if faulty || err != nil {
				return l, err // no way around the faults
			}
			return withNeighbours(l, addrs), nil
		}
	}
	return d.bound.open(p.addrs, func(addrs []netip.Addr) (link.Link, error) { return open(addrs, d.cfg.shards()) })
}

// close ends a context, and with the last one the engine.
func (d *device) close(c *context) error {
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
	d.bound.forget()
	err := eng.Close()
	d.capture.stop()
	return verbsError("closing the link", err)
}

// running is the engine, nil if no context is open.
func (d *device) running() *engine.Engine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.eng
}

// refresh looks at the network interface again and raises the events of what changed.
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
		d.raise(verbs.EventGIDChange)
	}
	switch {
	case p.up && !old.up:
		d.raise(verbs.EventPortActive)
	case old.up && !p.up:
		d.raise(verbs.EventPortErr)
	}
	if p.speed != old.speed && p.speed != 0 && old.speed != 0 {
		d.raise(verbs.EventDeviceSpeedChange)
	}
	if p.gone && !old.gone {
		for _, c := range d.contexts {
			c.up.DeviceEvent(verbs.EventDeviceFatal)
		}
	}
}

// raise reports an event of the port to every context. d.mu is held.
func (d *device) raise(t verbs.EventType) {
	for _, c := range d.contexts {
		c.up.PortEvent(t, 1)
	}
}
