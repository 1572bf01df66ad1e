package verbs

import (
	"errors"
	"fmt"
	"sync"
)

// CounterDescription names the quantity that a counter counts (enum ibv_counter_description).
type CounterDescription uint32

// The descriptions (IBV_COUNTER_*).
const (
	CounterPackets CounterDescription = 0
	CounterBytes   CounterDescription = 1 // of frames, without the frame check sequence
)

var counterNames = []string{"PACKETS", "BYTES"}

// String returns the name without IBV_COUNTER_.
func (d CounterDescription) String() string {
	return nameOf("CounterDescription", counterNames, int64(d))
}

// ReadCountersFlags modify Counters.Read (enum ibv_read_counters_flags).
type ReadCountersFlags uint32

// ReadCountersPreferCached allows slightly old values (IBV_READ_COUNTERS_ATTR_PREFER_CACHED).
const ReadCountersPreferCached ReadCountersFlags = 1 << 0

// String joins the names of the flags without IBV_READ_COUNTERS_ATTR_.
func (f ReadCountersFlags) String() string {
	return flagsOf([]string{"PREFER_CACHED"}, uint64(f), "|")
}

// MaxCounters is the number of counters of one Counters; indices are 0 to MaxCounters-1.
const MaxCounters = 64

// CounterAttachAttr describes one counter (struct ibv_counter_attach_attr).
type CounterAttachAttr struct {
	CounterDesc CounterDescription
	Index       uint32 // of the value in Read, 0 to MaxCounters-1
}

// Counters count the frames that flow rules match (struct ibv_counters). It is safe for concurrent use.
type Counters struct {
	ctx      *Context
	drv      DriverCounters
	lifetime lifetime

	mu sync.Mutex // serialises AttachPointFlow, Read and Close
	// +checklocks:mu
	descs map[uint32]CounterDescription // by index
	// +checklocks:mu
	last uint32 // the highest index
}

// CreateCounters creates counters, which start at 0 and only grow (ibv_create_counters, struct
// ibv_counters_init_attr). AttachPointFlow describes them; a FlowSpecActionCount attaches them to rules. ENOSYS if
// the device has no counters, ENOMEM without resources.
func (vctx *Context) CreateCounters() (*Counters, error) {
	const op = "create_counters"
	if err := vctx.use(op, kindCounters); err != nil {
		return nil, err
	}
	drv, err := vctx.drv.CreateCounters()
	if err != nil {
		vctx.lifetime.drop(kindCounters)
		return nil, driverError(op, vctx.obj(), err)
	}
	return &Counters{ctx: vctx, drv: drv, descs: map[uint32]CounterDescription{}}, nil
}

// Context returns the context of the counters.
func (c *Counters) Context() *Context { return c.ctx }

func (c *Counters) obj() string { return "counters of " + c.ctx.obj() }

// AttachPointFlow describes one counter (ibv_attach_counters_point_flow). If flow is nil, the description is for
// rules created later with a FlowSpecActionCount. Otherwise the counters are also attached to flow, which counts into
// them until it is closed.
//
// Errors: EINVAL for an unknown description, an index above MaxCounters-1, an index that is described already, or a
// flow of another context. EBUSY if flow is nil and a rule uses the counters already.
func (c *Counters) AttachPointFlow(attr *CounterAttachAttr, flow *Flow) error {
	const op = "attach_counters_point_flow"
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.checkAttach(op, attr, flow); err != nil {
		return err
	}
	if flow != nil {
		if err := flow.attach(op, c); err != nil {
			return err
		}
	}
	c.descs[attr.Index] = attr.CounterDesc
	c.last = max(c.last, attr.Index)
	return nil
}

// +checklocks:c.mu
func (c *Counters) checkAttach(op string, attr *CounterAttachAttr, flow *Flow) error {
	switch {
	case c.lifetime.closed.Load():
		return errClosed(op, c.obj())
	case c.ctx.isRemoved():
		return errRemoved(op, c)
	case attr == nil:
		return newError(op, c.obj(), EINVAL, "the attributes are nil")
	case attr.CounterDesc > CounterBytes:
		return newError(op, c.obj(), EINVAL, "unknown counter description %v; must be PACKETS or BYTES", attr.CounterDesc)
	case attr.Index >= MaxCounters:
		return newError(op, c.obj(), EINVAL, "index %d: must be 0 to %d", attr.Index, MaxCounters-1)
	case flow != nil && flow.qp.ctx != c.ctx:
		return newError(op, c.obj(), EINVAL, "the flow belongs to another context")
	case flow == nil && c.lifetime.has(kindFlow):
		return newError(op, c.obj(), EBUSY, "a flow uses the counters already")
	}
	if d, ok := c.descs[attr.Index]; ok {
		return newError(op, c.obj(), EINVAL, "index %d has %v already", attr.Index, d)
	}
	return nil
}

// attach makes the rule count into c. c.mu is held.
func (f *Flow) attach(op string, c *Counters) error {
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	if f.lifetime.closed.Load() {
		return errClosed(op, f.obj())
	}
	for _, have := range f.counters {
		if have == c {
			return nil
		}
	}
	if !c.lifetime.use(kindFlow) {
		return errClosed(op, c.obj())
	}
	if err := c.drv.Attach(f.drv); err != nil {
		c.lifetime.drop(kindFlow)
		return driverError(op, c.obj(), err)
	}
	f.counters = append(f.counters, c)
	return nil
}

// countable returns an error if rules of a context cannot count into c.
func (c *Counters) countable(vctx *Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lifetime.closed.Load():
		return fmt.Errorf("the counters: %w", errClosed("create_flow", c.obj()))
	case c.ctx != vctx:
		return errors.New("the counters belong to another context")
	case len(c.descs) == 0:
		return errors.New("no counter is described; call AttachPointFlow first")
	}
	return nil
}

// Read copies each counter to values, at its index (ibv_read_counters). A value without a description is 0. EINVAL if
// no counter is described, values is too short, or flags is unknown.
func (c *Counters) Read(values []uint64, flags ReadCountersFlags) error {
	const op = "read_counters"
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lifetime.closed.Load():
		return errClosed(op, c.obj())
	case c.ctx.isRemoved():
		return errRemoved(op, c)
	case flags&^ReadCountersPreferCached != 0:
		return newError(op, c.obj(), EINVAL, "unknown flags %v; must be of %v", flags&^ReadCountersPreferCached,
			ReadCountersPreferCached)
	case len(c.descs) == 0:
		return newError(op, c.obj(), EINVAL, "no counter is described; call AttachPointFlow first")
	case int64(len(values)) <= int64(c.last):
		return newError(op, c.obj(), EINVAL, "%d values: must be %d or more", len(values), c.last+1)
	}
	packets, bytes, err := c.drv.Read()
	if err != nil {
		return driverError(op, c.obj(), err)
	}
	clear(values)
	for i, d := range c.descs {
		if d == CounterPackets {
			values[i] = packets
		} else {
			values[i] = bytes
		}
	}
	return nil
}

// Close destroys the counters (ibv_destroy_counters). EBUSY while flows count into them.
func (c *Counters) Close() error {
	const op = "destroy_counters"
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.lifetime.close(op, c); err != nil {
		return err
	}
	if err := destroyed(c.drv.Destroy()); err != nil {
		c.lifetime.reopen()
		return driverError(op, c.obj(), err)
	}
	c.ctx.lifetime.drop(kindCounters)
	return c.ctx.ended(op, c)
}
