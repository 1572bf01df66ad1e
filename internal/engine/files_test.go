package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/link"
	"github.com/verbena-rdma/verbena/internal/transport"
)

func TestFilesHaveTheKernelsNamesAndUnits(t *testing.T) {
	c := Counters{
		QP: transport.Counters{Events: transport.Events{DuplicateRequest: 3, BadPKey: 4}},
		Port: link.Counters{
			TxPackets: 5, TxBytes: 403, RxPackets: 6, RxBytes: 800, TxDropped: 7, RxICRCErrors: 8, RxMalformed: 9,
		},
	}
	files := c.Files()
	for name, want := range map[string]uint64{
		"hw_counters/duplicate_request": 3, "hw_counters/sent_pkts": 5, "hw_counters/tx_bytes": 403,
		"counters/port_xmit_data": 100, "counters/port_rcv_data": 200, "counters/port_xmit_packets": 5,
		"counters/port_rcv_packets": 6, "counters/port_xmit_discards": 7, "counters/port_rcv_errors": 17,
		"counters/port_rcv_constraint_errors": 4, "counters/symbol_error": 0,
	} {
		i := slices.IndexFunc(files, func(n Counter) bool { return n.Name == name })
		if i < 0 || files[i].Value != want {
			t.Errorf("%s: %d: must be in %v as %d", name, i, files, want)
		}
	}
	n := 0
	for _, f := range files {
		if strings.HasPrefix(f.Name, "hw_counters/") {
			n++
		}
	}
	if n != len(c.List()) {
		t.Errorf("%d files in hw_counters: must be the %d counters", n, len(c.List()))
	}
}
