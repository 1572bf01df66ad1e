package rdmashow

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/control"
)

// A device with several ports has a link for each. QPs and IDs are on theirs.
func TestLinksOfTwoPorts(t *testing.T) {
	h := &fakeHost{names: []string{"two"},
		links: map[string][]port{"two": {{"ACTIVE", "LINK_UP", "eth0", 2}, {"DOWN", "DISABLED", "eth1", 3}}},
		list: []control.Report{{PID: 9, Comm: "p", Devices: []control.Device{{Name: "two",
			QPs: []control.QP{{Num: 17, Type: "UD", State: "RTS", Port: 1}, {Num: 18, Type: "UD", State: "RTS", Port: 2},
				{Num: 19, Type: "UD", State: "RESET"}},
			CMIDs:    []control.CMID{{Num: 1, State: "LISTEN", PS: "TCP", Port: 2}},
			Counters: []control.Counter{{Name: "sent_pkts", Value: 5}}}}}}}
	const first = "link two/1 state ACTIVE physical_state LINK_UP netdev eth0 \n"
	const second = "link two/2 state DOWN physical_state DISABLED netdev eth1 \n"
	const qp18 = "link two/2 lqpn 18 type UD state RTS sq-psn 0 pid 9 comm p \n"
	for args, want := range map[string]string{
		"link": first + second, "link show two": first + second, "link show two/1": first, "link show two/2": second,
		"-j link show two/2": `[{"ifindex":0,"ifname":"two","port":2,"state":"DOWN","physical_state":"DISABLED",` +
			`"netdev":"eth1","netdev_index":3}]` + "\n",
		"resource show qp": "link two/1 lqpn 17 type UD state RTS sq-psn 0 pid 9 comm p \n" + qp18 +
			"link two/1 lqpn 19 type UD state RESET sq-psn 0 pid 9 comm p \n",
		"resource show qp link two/2":    qp18,
		"resource show cm_id link two/2": "link two/2 cm-idn 1 state LISTEN ps TCP pid 9 comm p \n",
		"resource show cm_id link two/1": "",
		"statistic show link two/1":      "link two/1 sent_pkts 5 \n",
		"statistic show link two/2":      "",
		"statistic qp show link two/2":   "link two/2 cntn 18 qp-type UD pid 9 comm p \n    LQPN: <18>\n",
	} {
		if status, out, errs := rdma(h, args); status != 0 || out != want {
			t.Errorf("%s: status %d, %q, %s; want %q", args, status, out, errs, want)
		}
	}
	for args, want := range map[string]string{
		"link show two/3":             "verbena rdma: two: port \"3\": must be 1 to 2\n",
		"resource show qp link two/3": "verbena rdma: two: port \"3\": must be 1 to 2\n",
		"link show two/x":             "verbena rdma: two: port \"x\": must be the number of a port\n",
		"link show two/0":             "verbena rdma: two: port \"0\": must be the number of a port\n",
	} {
		if status, _, errs := rdma(h, args); status != 1 || errs != want {
			t.Errorf("%s: status %d, %q; want %q", args, status, errs, want)
		}
	}
	if got := (&completer{viewer{host: h}}).ports(nil); len(got) != 2 || got[1] != "two/2" {
		t.Errorf("proposals %q", got)
	}
}
