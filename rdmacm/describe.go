package rdmacm

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/control"
)

// tell has the host's IDs shown by the tools that look into programs ("verbena rdma resource show cm_id"). Host.mu is held.
func (h *Host) tell() {
	if h.silence == nil {
		h.silence = control.AddSource(h.describe)
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
			if locked(id, func() bool { return id.listensOn(d) }) {
				r.Devices[i].CMIDs = append(r.Devices[i].CMIDs, id.describe())
			}
		}
	}
}

func (id *ID) describe() control.CMID {
	return locked(id, func() control.CMID {
		c := control.CMID{Num: id.num, Type: id.qpType.String(), State: id.state.String(), PS: id.ps.String()}
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
	})
}
