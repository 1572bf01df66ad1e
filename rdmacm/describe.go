package rdmacm

import (
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/control"
)

// publish adds the host's IDs to the reports of the tools ("verbena rdma resource show cm_id").
//
// +checklocks:h.mu
func (h *Host) publish() {
	if h.unpublish == nil {
		h.unpublish = control.AddSource(h.describe)
	}
}

// describe adds the host's IDs to a report.
func (h *Host) describe(r *control.Report) {
	h.mu.Lock()
	devices := slices.Clone(h.devices)
	h.mu.Unlock()
	for _, d := range devices {
		i := slices.IndexFunc(r.Devices, func(o control.Device) bool { return o.Name == d.vdev.Name() })
		if i < 0 {
			continue
		}
		bound, wild := d.bound()
		for _, id := range bound {
			r.Devices[i].CMIDs = append(r.Devices[i].CMIDs, id.describe())
		}
		for _, id := range wild {
			if id.isOn(d) {
				r.Devices[i].CMIDs = append(r.Devices[i].CMIDs, id.describe())
			}
		}
		c := h.Counters(d.ctx)
		for name, n := range c.Map() {
			if name != "ids" { // a number of objects, which the report has anyway
				r.Devices[i].CM = append(r.Devices[i].CM, control.Counter{Name: name, Value: n})
			}
		}
		slices.SortFunc(r.Devices[i].CM, func(a, b control.Counter) int { return strings.Compare(a.Name, b.Name) })
	}
}

// isOn reports whether the ID listens on the device.
func (id *ID) isOn(d *device) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.listensOn(d)
}

// describe is the ID's line of a report.
func (id *ID) describe() control.CMID {
	id.mu.Lock()
	defer id.mu.Unlock()
	c := control.CMID{Num: id.num, Type: id.qpType.String(), State: id.state.String(), PS: id.ps.String(),
		Port: int(id.sgid.port)}
	if id.qp != nil {
		c.QP = id.qp.QPN()
	}
	if id.local.IsValid() {
		c.Src = id.local.String()
	}
	if id.remote.IsValid() {
		c.Dst = id.remote.String()
	}
	return c
}
