package iwtcp

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/transport"
)

// A View is a snapshot of a QP.
type View struct {
	QP            *QP
	State         transport.State
	Local, Remote netip.AddrPort // of the connection; invalid if the QP has had none since RESET
	Counters      Counters
}

// View takes a snapshot.
func (q *QP) View() View {
	q.mu.Lock()
	defer q.mu.Unlock()
	v := View{QP: q, State: q.State(), Local: q.trace.local, Remote: q.trace.remote, Counters: q.counters}
	if q.fd >= 0 {
		q.countStream(&v.Counters)
	}
	return v
}

// countStream adds what the connection has counted. TCP counts its segments, so that nothing counts them here.
//
// +checklocks:q.mu
func (q *QP) countStream(c *Counters) {
	c.TxBytes += q.trace.sent - 1 // each direction begins at 1
	c.RxBytes += q.trace.got - 1
	if d := q.near.Duplex; d != nil {
		c.TxPackets += d.Sent
		c.RxPackets += d.Received
		c.ShmTxPackets += d.Sent
		c.ShmRxPackets += d.Received
	}
	info, err := unix.GetsockoptTCPInfo(q.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return
	}
	c.TxPackets += uint64(info.Segs_out)
	c.RxPackets += uint64(info.Segs_in)
	c.RetransmitPackets += uint64(info.Total_retrans)
}

// Views takes snapshots of all QPs, in the order of their numbers, and returns the device's counters.
func (d *Device) Views() (list []View, sum Counters) {
	d.mu.Lock()
	qps := slices.SortedFunc(maps.Values(d.qps), func(a, b *QP) int { return cmp.Compare(a.Num, b.Num) })
	sum = d.gone
	d.mu.Unlock()
	for _, q := range qps { // one that is destroyed meanwhile keeps its counters
		v := q.View()
		engine.AddCounters(&sum, &v.Counters)
		list = append(list, v)
	}
	return list, sum
}

// ResetCounters sets the device's counters to 0, because it was opened. It has no QP then.
func (d *Device) ResetCounters() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone = Counters{}
}
