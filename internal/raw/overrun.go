package raw

import (
	"slices"

	"github.com/verbena-rdma/verbena/internal/transport"
)

// Overrun moves the QPs and work queues of a CQ that has overflowed to ERR, and reports that (V-AE-19). Otherwise those
// would learn of it that use the CQ next. It must not be called by the CQ, which the holder of a lock pushes to.
func (d *Device) Overrun() {
	d.mu.Lock()
	for _, w := range d.wqs {
		if w.state == WQReady && w.CQ.Broken() {
			w.failed(new(failed))
		}
	}
	qps := d.qps
	for _, q := range qps {
		if q.Overrun() {
			q.overrun()
		}
	}
	d.mu.Unlock()
	for _, q := range qps {
		q.kick() // flushes the sends
	}
}

// Overrun reports whether a CQ of the QP has overflowed.
func (q *QP) Overrun() bool {
	return q.SendCQ != nil && q.SendCQ.Broken() || q.RQ != nil && q.RQ.CQ.Broken()
}

// overrun moves the QP to ERR because a CQ of it has overflowed. The device's mu is held.
func (q *QP) overrun() {
	if s := q.State(); s == transport.Err || s == transport.Reset {
		return
	}
	q.state.Store(uint32(transport.Err))
	q.Up.StateChanged(transport.Err)
	q.flushReceives()
	q.Up.Event(transport.EventQPFatal)
}

// forget removes a work queue from the device. mu is held.
//
// +checklocks:d.mu
func (d *Device) forget(w *WQ) {
	d.wqs = slices.DeleteFunc(d.wqs, func(o *WQ) bool { return o == w })
}
