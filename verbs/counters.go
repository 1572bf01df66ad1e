package verbs

import (
	"errors"
	"fmt"
	"sync"
)

// CounterDescription tells what a counter counts (enum ibv_counter_description).
type CounterDescription uint32

// The descriptions (IBV_COUNTER_*).
const (
	CounterPackets CounterDescription = 0
	CounterBytes   CounterDescription = 1 // of frames, without the frame check sequence
)

var counterNames = []string{"PACKETS", "BYTES"}

// String is the name without IBV_COUNTER_.
func (d CounterDescription) String() string {
	return nameOf("CounterDescription", counterNames, int64(d))
}

// ReadCountersFlags modify Counters.Read (enum ibv_read_counters_flags).
type ReadCountersFlags uint32

// ReadCountersPreferCached allows values that are a little old (IBV_READ_COUNTERS_ATTR_PREFER_CACHED).
const ReadCountersPreferCached ReadCountersFlags = 1 << 0

// String joins the names of the flags without IBV_READ_COUNTERS_ATTR_.
func (f ReadCountersFlags) String() string {
	return flagsOf([]string{"PREFER_CACHED"}, uint64(f), "|")
}

// MaxCounters is how many counters one Counters has: indices are 0..MaxCounters-1.
const MaxCounters = 64

// CountersInitAttr says what Counters to make (struct ibv_counters_init_attr).
type CountersInitAttr struct{ CompMask uint32 } // 0

// CounterAttachAttr describes one counter (struct ibv_counter_attach_attr).
type CounterAttachAttr struct {
	CounterDesc CounterDescription
	Index       uint32 // of its value in Read, 0..MaxCounters-1
	CompMask    uint32 // 0
}

// Counters count what flow rules match (struct ibv_counters). It is safe for concurrent use.
type Counters struct {
	ctx  *Context
	drv  CountersDriver
	life life

	mu    sync.Mutex
	descs map[uint32]CounterDescription // by index
	last  uint32                        // the highest index
}

// CreateCounters makes counters, which are 0 and then only grow (ibv_create_counters). init may be nil. AttachPointFlow says what
// they count, a FlowSpecActionCount for which rules. EINVAL if init has anything in it, ENOSYS if the device has none, ENOMEM without
// resources.
func (ctx *Context) CreateCounters(init *CountersInitAttr) (*Counters, error) {
	const op = "create_counters"
	if init != nil && init.CompMask != 0 {
		return nil, newError(op, ctx.obj(), EINVAL, "unknown attributes %#x; there are none", init.CompMask)
	}
	creator, ok := ctx.drv.(CountersCreator)
	if !ok {
		return nil, newError(op, ctx.obj(), ENOSYS, "the device has no counters")
	}
	if !ctx.life.use(kindCounters) {
		return nil, errClosed(op, ctx.obj())
	}
	drv, err := creator.CreateCounters()
	if err != nil {
		ctx.life.drop(kindCounters)
		return nil, driverError(op, ctx.obj(), err)
	}
	return &Counters{ctx: ctx, drv: drv, descs: map[uint32]CounterDescription{}}, nil
}

// Driver gives providers the driver object of the counters.
func (c *Counters) Driver() CountersDriver { return c.drv }

// Context is the context that the counters belong to.
func (c *Counters) Context() *Context { return c.ctx }

func (c *Counters) obj() string { return "counters of " + c.ctx.obj() }

// AttachPointFlow describes one of the counters (ibv_attach_counters_point_flow). With flow nil this is for rules to be made
// with a FlowSpecActionCount; EBUSY if there is one already. Otherwise the counters are attached to that rule, which counts into them from
// now on, until it is closed. EINVAL: a description or an index that does not exist, an index that has a description already, or a flow of
// another context.
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

func (c *Counters) checkAttach(op string, attr *CounterAttachAttr, flow *Flow) error {
	switch {
	case c.life.closed.Load():
		return errClosed(op, c.obj())
	case attr == nil:
		return newError(op, c.obj(), EINVAL, "there are no attributes")
	case attr.CompMask != 0:
		return newError(op, c.obj(), EINVAL, "unknown attributes %#x; there are none", attr.CompMask)
	case attr.CounterDesc > CounterBytes:
		return newError(op, c.obj(), EINVAL, "%v is not a description; PACKETS and BYTES are", attr.CounterDesc)
	case attr.Index >= MaxCounters:
		return newError(op, c.obj(), EINVAL, "index %d is too large; 0 to %d are possible", attr.Index, MaxCounters-1)
	case flow != nil && flow.qp.ctx != c.ctx:
		return newError(op, c.obj(), EINVAL, "the flow belongs to another context")
	case flow == nil && c.life.has(kindFlow):
		return newError(op, c.obj(), EBUSY, "a flow counts into them already")
	}
	if d, ok := c.descs[attr.Index]; ok {
		return newError(op, c.obj(), EINVAL, "index %d has %v already", attr.Index, d)
	}
	return nil
}

// attach makes the rule count into c too. c.mu is held.
func (f *Flow) attach(op string, c *Counters) error {
	f.qp.mu.Lock()
	defer f.qp.mu.Unlock()
	for _, have := range f.counters {
		if have == c {
			return nil
		}
	}
	if f.life.closed.Load() {
		return errClosed(op, f.obj())
	}
	if !c.life.use(kindFlow) {
		return errClosed(op, c.obj())
	}
	if err := c.drv.Attach(f.drv); err != nil {
		c.life.drop(kindFlow)
		return driverError(op, c.obj(), err)
	}
	f.counters = append(f.counters, c)
	return nil
}

// countable says why rules of a context cannot count into c.
func (c *Counters) countable(ctx *Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.closed.Load():
		return fmt.Errorf("the counters: %w", errClosed("create_flow", c.obj()))
	case c.ctx != ctx:
		return errors.New("the counters belong to another context")
	case len(c.descs) == 0:
		return errors.New("the counters count nothing; AttachPointFlow describes what they shall count")
	}
	return nil
}

// Read copies the counters to values, each to its index (ibv_read_counters). Where an index has no description the value is 0.
// EINVAL if there are no counters, values is too short for them, or flags is unknown.
func (c *Counters) Read(values []uint64, flags ReadCountersFlags) error {
	const op = "read_counters"
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.life.closed.Load():
		return errClosed(op, c.obj())
	case flags&^ReadCountersPreferCached != 0:
		return newError(op, c.obj(), EINVAL, "unknown flags %v; there is %v", flags&^ReadCountersPreferCached, ReadCountersPreferCached)
	case len(c.descs) == 0:
		return newError(op, c.obj(), EINVAL, "nothing is counted; AttachPointFlow describes what shall be")
	case int64(len(values)) <= int64(c.last):
		return newError(op, c.obj(), EINVAL, "room for %d values is too little; there are %d", len(values), c.last+1)
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
	if err := c.life.end(op, c.obj()); err != nil {
		return err
	}
	if err := destroyed(c.drv.Destroy()); err != nil {
		c.life.revive()
		return driverError(op, c.obj(), err)
	}
	c.ctx.life.drop(kindCounters)
	return nil
}
