package iwtcp

import (
	"slices"
	"testing"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/iwarp"
)

// Each counter has a description. Those that RoCE devices have too have the same names.
func TestCountersHaveNames(t *testing.T) {
	c := Counters{QP: iwarp.Counters{OutOfBuffer: 1, RxCRCErrors: 2}, TxBytes: 403, RxPackets: 5}
	own := map[string]bool{"out_of_buffer": true, "tx_terminates": true, "rx_terminates": true, "rx_crc_errors": true}
	roce := new(engine.Counters).List()
	for _, n := range c.List() {
		if control.Help(n.Name) == "" {
			t.Errorf("%s has no description", n.Name)
		}
		if known := slices.ContainsFunc(roce, func(o engine.Counter) bool { return o.Name == n.Name }); known == own[n.Name] {
			t.Errorf("%s is among those of RoCE: %v", n.Name, known)
		}
	}
	files := c.Files()
	for name, want := range map[string]uint64{"hw_counters/out_of_buffer": 1, "counters/port_rcv_errors": 2,
		"counters/port_xmit_data": 100, "counters/port_rcv_packets": 5, "counters/symbol_error": 0} {
		i := slices.IndexFunc(files, func(n engine.Counter) bool { return n.Name == name })
		if i < 0 || files[i].Value != want {
			t.Errorf("%s: must be %d in %v", name, want, files)
		}
	}
}

// All counters are uint64s, as engine.AddCounters expects.
func TestCountersAreWords(t *testing.T) {
	var c Counters
	if n := uintptr(len(c.List())); unsafe.Sizeof(c) != n*8 {
		t.Errorf("%d bytes for %d counters", unsafe.Sizeof(c), n)
	}
}
