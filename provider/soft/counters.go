package soft

import (
	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/verbs"
)

// Counter is one of the device's counters. Its name is that of the kernel's hw_counters if the kernel has the
// counter.
type Counter struct {
	Name  string
	Value uint64
}

// Counters returns the device's counters since it was opened, nil while no context of it is open. In C they are files
// in /sys/class/infiniband/*/ports/1/hw_counters. Counters is safe for concurrent use.
func (d *Device) Counters() []Counter { return d.dev.counters() }

// Counters is Device.Counters for any device of this provider or provider/iwarp; nil for other devices.
func Counters(d *verbs.Device) []Counter {
	if dev := driver.Of[*device](d); dev != nil {
		return dev.counters()
	}
	return nil
}

// ShardCounters returns the counters of each shard of a device; nil before its first QP, for iWARP devices and for
// devices of other providers. It has no C twin.
func ShardCounters(d *verbs.Device) (list [][]Counter) {
	dev := driver.Of[*device](d)
	if dev == nil {
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

// QPCounters returns the counters of a QP of this provider or provider/iwarp; nil for other QPs. It has no C twin.
func QPCounters(q *verbs.QP) []Counter {
	if list := streamCounters(q); list != nil {
		return named(list)
	}
	drv := driver.Of[*qp](q)
	if drv == nil {
		return nil
	}
	c := drv.Counters()
	return named(engine.ListCounters(&c))
}

func (d *device) counters() []Counter {
	if c := d.count(); c != nil {
		return named(c.List())
	}
	return nil
}

// counts are the counters of a device of either kind.
type counts interface {
	List() []engine.Counter
	Files() []engine.Counter // as the files of a port in sysfs
}

// count returns the device's counters, nil while no context is open.
func (d *device) count() counts {
	e := d.running()
	switch {
	case e == nil:
		return nil
	case d.spec.streams:
		return d.streams.count()
	}
	c := e.Counters()
	return &c
}

// named converts a list of counters.
func named(in []engine.Counter) []Counter {
	out := make([]Counter, len(in))
	for i, c := range in {
		out[i] = Counter(c)
	}
	return out
}
