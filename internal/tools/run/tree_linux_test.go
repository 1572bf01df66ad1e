package run

import (
	"slices"
	"testing"

	_ "github.com/verbena-rdma/verbena/provider/iwarp"
	"github.com/verbena-rdma/verbena/verbs"
)

// An iWARP device has the counters that it counts, and the node type of one.
func TestTreeDescribesAnIWARPDevice(t *testing.T) {
	t.Setenv("VERBENA_DEVICES", "vrb_tree=127.0.0.1")
	t.Setenv("VERBENA_PROVIDER", "iwarp")
	devices, err := verbs.Devices()
	i := slices.IndexFunc(devices, func(d *verbs.Device) bool { return d.Name() == "vrw_tree" })
	if err != nil || i < 0 {
		t.Fatalf("%v, %v", devices, err)
	}
	tr := newTree()
	if err := tr.describe(0, devices[i]); err != nil {
		t.Fatal(err)
	}
	const dir = "class/infiniband/vrw_tree/"
	for path, want := range map[string]string{"node_type": "4: RNIC\n", "ports/1/hw_counters/tx_terminates": "0\n",
		"ports/1/hw_counters/sent_pkts": "0\n", "ports/1/counters/port_xmit_data": "0\n"} {
		if tr[dir+path] != want {
			t.Errorf("%s: %q: must be %q", path, tr[dir+path], want)
		}
	}
	if _, ok := tr[dir+"ports/1/hw_counters/rx_icrc_errors"]; ok {
		t.Error("it has a counter of RoCE")
	}
}
