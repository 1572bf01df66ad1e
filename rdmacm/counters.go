package rdmacm

import (
	"strings"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
	"github.com/verbena-rdma/verbena/umad"
	"github.com/verbena-rdma/verbena/verbs"
)

// Counters are the counters of a device's connection management.
type Counters struct {
	CM  cm.Counters   // by message: sent, repeated, received, duplicates; rejected and dropped messages
	MAD umad.Counters // of QP 1
	IDs int           // IDs that are bound to the device
}

// Map returns the counters by name. Those of messages have the kernel's names, the files below
// /sys/class/infiniband_cm: "cm_tx_msgs/req", "cm_rx_duplicates/rep".
func (c *Counters) Map() map[string]uint64 {
	m := map[string]uint64{
		"rx_malformed": c.CM.RxMalformed, "rx_invalid": c.CM.RxInvalid, "rx_spoofed": c.CM.RxSpoofed,
		"rx_unmatched": c.CM.RxUnmatched,
		"stale":        c.CM.Stale, "backlog_full": c.CM.BacklogFull, "table_full": c.CM.TableFull,
		"half_open_dropped": c.CM.Flooded, "half_open_evicted": c.CM.Evicted,
		"answers_limited": c.CM.Unanswered,
		"deaths":          c.CM.Deaths, "ids": uint64(c.IDs),
		"mad_sent": c.MAD.Sent, "mad_tx_dropped": c.MAD.TxDropped, "mad_received": c.MAD.Received,
		"mad_malformed": c.MAD.Malformed,
		"mad_unclaimed": c.MAD.Unclaimed, "mad_spoofed": c.MAD.Spoofed, "mad_queue_full": c.MAD.QueueFull,
	}
	for group, counts := range map[string]*cm.KindCounts{
		"cm_tx_msgs/": &c.CM.Tx, "cm_tx_retries/": &c.CM.TxRetries, "cm_rx_msgs/": &c.CM.Rx,
		"cm_rx_duplicates/": &c.CM.RxDuplicates,
	} {
		for k := cmmsg.KindREQ; k.Valid(); k++ {
			m[group+strings.ToLower(k.String())] = counts.Of(k)
		}
	}
	return m
}

// Counters reads the counters of a device of the host. They are zero while no ID has used it; of an adapter or an iWARP
// device only IDs is counted. It is safe for concurrent use, and has no C twin.
func (h *Host) Counters(vctx *verbs.Context) (c Counters) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if d.ctx != vctx {
			continue
		}
		c.IDs = len(d.users)
		if d.cm != nil {
			c.CM, c.MAD = d.cm.counters(), d.cm.port.Counters()
		}
	}
	return c
}
