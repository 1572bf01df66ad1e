package rdmacm

import (
	"strings"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// Counters are what the connection management of a device has counted.
type Counters struct {
	CM  cm.Counters   // by message: sent, sent again, received, duplicates; refused and dropped ones
	MAD umad.Counters // of QP 1
	IDs int           // that are bound to the device: none when nothing has leaked
}

// Map has the counters by name. Those of messages have the kernel's names, the files below /sys/class/infiniband_cm:
// "cm_tx_msgs/req", "cm_rx_duplicates/rep".
func (c *Counters) Map() map[string]uint64 {
	m := map[string]uint64{
		"rx_malformed": c.CM.RxMalformed, "rx_invalid": c.CM.RxInvalid, "rx_spoofed": c.CM.RxSpoofed, "rx_unmatched": c.CM.RxUnmatched,
		"stale": c.CM.Stale, "backlog_full": c.CM.BacklogFull, "table_full": c.CM.TableFull, "deaths": c.CM.Deaths, "ids": uint64(c.IDs),
		"mad_sent": c.MAD.Sent, "mad_tx_dropped": c.MAD.TxDropped, "mad_received": c.MAD.Received, "mad_malformed": c.MAD.Malformed,
		"mad_unclaimed": c.MAD.Unclaimed, "mad_spoofed": c.MAD.Spoofed, "mad_queue_full": c.MAD.QueueFull,
	}
	for group, counts := range map[string]*cm.KindCounts{
		"cm_tx_msgs/": &c.CM.Tx, "cm_tx_retries/": &c.CM.TxRetries, "cm_rx_msgs/": &c.CM.Rx, "cm_rx_duplicates/": &c.CM.RxDuplicates,
	} {
		for k := cmmsg.KindREQ; k.Valid(); k++ {
			m[group+strings.ToLower(k.String())] = counts.Of(k)
		}
	}
	return m
}

// Counters reads the counters of a device of the host. They are zero while no ID has used it.
func (h *Host) Counters(ctx *verbs.Context) (c Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if d.ctx != ctx || !d.started {
			continue
		}
		d.mu.Lock()
		c.CM = d.machine.Counters
		d.mu.Unlock()
		c.MAD = d.port.Counters()
		c.IDs = len(d.users)
	}
	return c
}
