package soft

import (
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/verbs"
)

// Counter is one of the device's counters, under the name that it has among the kernel's hw_counters if it is there.
type Counter struct {
	Name  string
	Value uint64
}

// Counters lists what the device has counted since it was opened; nothing while no context of it is open. The C world reads
// /sys/class/infiniband/*/ports/1/hw_counters.
func (d *Device) Counters() []Counter { return d.dev.counters() }

// Counters is Device.Counters for any device of this provider; nil for those of others.
func Counters(d *verbs.Device) []Counter {
	if dev, ok := d.Driver().(*device); ok {
		return dev.counters()
	}
	return nil
}

// ShardCounters lists the same for each part that the device runs its QPs in; there is none before its first QP.
func ShardCounters(d *verbs.Device) (list [][]Counter) {
	dev, ok := d.Driver().(*device)
	if !ok {
		return nil
	}
	if e := dev.running(); e != nil {
		for i := range e.Shards() {
			c := e.ShardCounters(i)
			list = append(list, named(c.List()))
		}
	}
	return list
}

// QPCounters lists what a QP of this provider has counted; nil for those of others.
func QPCounters(q *verbs.QP) []Counter {
	drv, ok := q.Driver().(*qp)
	if !ok {
		return nil
	}
	c := drv.Counters()
	return named(engine.ListQP(&c))
}

func (d *device) counters() []Counter {
	if e := d.running(); e != nil {
		c := e.Counters()
		return named(c.List())
	}
	return nil
}

func named(in []engine.Counter) []Counter {
	out := make([]Counter, len(in))
	for i, c := range in {
		out[i] = Counter(c)
	}
	return out
}
