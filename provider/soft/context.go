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

// defaultPKey is the only P_Key: the default partition, full member.
const defaultPKey = 0xffff

// context is a ContextDriver.
type context struct {
	dev     *device
	num     uint32
	eng     *engine.Engine
	regions *mr.Table
	frames  *raw.Device
	up      verbs.ContextUpcalls
}

// Close ends the context, and with the last one of the device its engine.
func (c *context) Close() error { return c.dev.close(c) }

// NumCompVectors is the number of shards.
func (c *context) NumCompVectors() int { return c.dev.cfg.shards() }

// QueryDevice describes the device.
func (c *context) QueryDevice() (verbs.DeviceAttr, error) { return c.dev.deviceAttr(), nil }

// QueryPort describes the port.
func (c *context) QueryPort(uint8) (verbs.PortAttr, error) {
	a := c.dev.port.Load().attr()
	a.BadPKeyCntr, a.QKeyViolCntr = c.dev.violations.read(c.eng)
	return a, nil
}

// GIDTable is the GID table.
func (c *context) GIDTable(uint8) ([]verbs.GIDEntry, error) {
	p := c.dev.port.Load()
	return p.table.entries(func(a netip.Addr) string { return p.spec.netdev(a, p.iface) }), nil
}

// PKeyTable is the P_Key table.
func (c *context) PKeyTable(uint8) ([]uint16, error) { return []uint16{defaultPKey}, nil }

// SelectGID chooses a GID for a peer.
func (c *context) SelectGID(_ uint8, peer netip.Addr) (verbs.GIDChoice, error) {
	return c.dev.port.Load().selectGID(peer)
}

// AllocPD makes a protection domain.
func (c *context) AllocPD() (verbs.PDDriver, error) {
	p := &pd{ctx: c, num: c.dev.lastPD.Add(1)}
	c.dev.census.pds.add(p)
	return p, nil
}

// CreateCQ makes a completion queue.
func (c *context) CreateCQ(cqe, compVector int, up verbs.CQUpcalls) (verbs.CQDriver, error) {
	return c.newCQ(cqe, compVector, up), nil
}

func (c *context) newCQ(cqe, compVector int, up verbs.CQUpcalls) *cq {
	q := &cq{up: &cqUpcalls{CQUpcalls: up}, ctx: c, num: c.dev.lastCQ.Add(1)}
	q.CQ = c.eng.NewCQ(cqe, compVector, q.up)
	c.dev.census.cqs.add(q)
	return q
}

// violations are the port's counters of packets with a wrong key. Counting them means a look at every QP, so it is not
// done for every query.
type violations struct {
	mu         sync.Mutex
	at         time.Time
	pkey, qkey uint32
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
