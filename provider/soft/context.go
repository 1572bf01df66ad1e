package soft

import (
	"net/netip"
	"sync"
	"time"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/raw"
	"github.com/verbena-rdma/verbena/verbs"
)

// deviceContext is a DriverContext.
type deviceContext struct {
	verbs.DriverUnsupported
	dev     *device
	num     uint32
	eng     *engine.Engine
	regions *mr.Table
	frames  *raw.Device
	up      verbs.DriverContextEvents
}

// Close closes the context, and with the last one of the device its engine.
func (c *deviceContext) Close() error { return c.dev.close(c) }

// NumCompVectors returns the number of shards.
func (c *deviceContext) NumCompVectors() int { return c.dev.cfg.shards() }

// QueryPort returns the port's attributes.
func (c *deviceContext) QueryPort(port uint8) (verbs.PortAttr, error) {
	a := c.dev.port.Load().attr()
	a.PKeyTblLen = uint16(len(c.dev.pkeys[port-1].get()))
	a.BadPKeyCntr, a.QKeyViolCntr = c.dev.violations.read(c.eng)
	return a, nil
}

// GIDTable returns the GID table.
func (c *deviceContext) GIDTable(uint8) ([]verbs.GIDEntry, error) {
	p := c.dev.port.Load()
	return p.table.entries(func(a netip.Addr) string { return p.spec.netdev(a, p.iface) }), nil
}

// SelectGID chooses a GID for a peer.
func (c *deviceContext) SelectGID(_ uint8, peer netip.Addr) (verbs.GIDChoice, error) {
	return c.dev.port.Load().selectGID(peer)
}

// AllocPD makes a protection domain.
func (c *deviceContext) AllocPD() (verbs.DriverPD, error) {
	p := &pd{ctx: c, num: c.dev.lastPD.Add(1)}
	c.dev.objects.pds.add(p)
	return p, nil
}

// violations are the port's counters of packets with a wrong key. Counting visits every QP, so a result is reused for
// violationsAge.
type violations struct {
	mu sync.Mutex // guards all fields
	// +checklocks:mu
	at time.Time // of the last count
	// +checklocks:mu
	pkey uint32
	// +checklocks:mu
	qkey uint32
}

const violationsAge = 100 * time.Millisecond

func (v *violations) read(e *engine.Engine) (pkey, qkey uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if now := time.Now(); now.Sub(v.at) > violationsAge {
		v.at = now
		v.pkey, v.qkey = e.KeyViolations()
	}
	return v.pkey, v.qkey
}

// pd is a DriverPD. Only its number matters to QPs, regions and windows.
type pd struct {
	verbs.DriverUnsupported
	ctx *deviceContext
	num uint32
}

// Dealloc removes the PD from the list of objects; it owns nothing else.
func (p *pd) Dealloc() error {
	p.ctx.dev.objects.pds.remove(p)
	return nil
}
