package soft

import (
	"net/netip"
	"sync/atomic"

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
	a := c.dev.at(port).attr()
	a.PKeyTblLen = uint16(len(c.dev.pkeys[port-1].get()))
	v := &c.dev.violations[port-1]
	a.BadPKeyCntr, a.QKeyViolCntr = v.pkey.Load(), v.qkey.Load()
	return a, nil
}

// GIDTable returns the GID table.
func (c *deviceContext) GIDTable(port uint8) ([]verbs.GIDEntry, error) {
	return c.dev.at(port).entries, nil
}

// SelectGID chooses a GID for a peer.
func (c *deviceContext) SelectGID(port uint8, peer netip.Addr) (verbs.GIDChoice, error) {
	return c.dev.at(port).selectGID(peer)
}

// AllocPD makes a protection domain.
func (c *deviceContext) AllocPD() (verbs.DriverPD, error) {
	p := &pd{ctx: c, num: c.dev.lastPD.Add(1)}
	c.dev.objects.pds.add(p)
	return p, nil
}

// violations are a port's counters of packets with a wrong key.
type violations struct{ pkey, qkey atomic.Uint32 }

// BadPKey and BadQKey count a packet with a wrong key; see transport.Ports.
func (d *device) BadPKey(port uint8) { d.violated(port).pkey.Add(1) }

// BadQKey counts a datagram with a wrong Q_Key.
func (d *device) BadQKey(port uint8) { d.violated(port).qkey.Add(1) }

func (d *device) violated(port uint8) *violations {
	return &d.violations[min(max(int(port), 1), len(d.violations))-1]
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
