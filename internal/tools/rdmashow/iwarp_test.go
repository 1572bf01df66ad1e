package rdmashow

import (
	"strings"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/control"
)

// overTCP is a program with a connected QP of an iWARP device and one that is not connected.
func overTCP(sent uint64) []control.Report {
	counters := []control.Counter{{Name: "tx_data_bytes", Value: sent}, {Name: "rx_data_bytes"},
		{Name: "retransmit_packets", Value: sent / 1000}, {Name: "tx_terminates"}}
	return []control.Report{{PID: 9, Comm: "rping", Devices: []control.Device{{Name: "vrw_lo", Counters: counters,
		QPs: []control.QP{
			{Num: 17, Type: "RC", State: "RTS", Mig: "MIGRATED", PD: 1, Local: "127.0.0.1:40000", Peer: "127.0.0.1:7174",
				Counters: counters},
			{Num: 18, Type: "RC", State: "INIT", Mig: "MIGRATED", PD: 1},
		}}}}}
}

// QPs of an iWARP device have the addresses of their connection, which are filters as those of IDs.
func TestQPsOverTCP(t *testing.T) {
	h := &fakeHost{names: []string{"vrw_lo"}, list: overTCP(0)}
	const fixed = "type RC state RTS rq-psn 0 sq-psn 0 path-mig-state MIGRATED pdn 1 pid 9 comm rping "
	const one = "link vrw_lo/1 lqpn 17 rqpn 0 " + fixed + "src-addr 127.0.0.1:40000 dst-addr 127.0.0.1:7174 \n"
	other := strings.NewReplacer("17", "18", "RTS", "INIT").Replace("link vrw_lo/1 lqpn 17 rqpn 0 "+fixed) + "\n"
	for args, want := range map[string]string{
		"resource show qp":                    one + other,
		"resource show qp dst-port 7174":      one,
		"resource show qp src-port 7174":      "",
		"resource show qp src-addr 127.0.0.1": one,
		"statistic show": "link vrw_lo/1 tx_data_bytes 0 rx_data_bytes 0 retransmit_packets 0 " +
			"tx_terminates 0 \n",
	} {
		if status, out, errs := rdma(h, args); status != 0 || out != want {
			t.Errorf("%s: status %d, %q, %s; want %q", args, status, out, errs, want)
		}
	}
}

// top has the rates of QPs of iWARP devices, and the peer with its port.
func TestTopOverTCP(t *testing.T) {
	at := time.Unix(0, 0)
	h := &fakeHost{names: []string{"vrw_lo"}}
	p := &topper{viewer: viewer{host: h}, now: func() time.Time { return at }}
	h.list = overTCP(0)
	before, _, err := p.look()
	if err != nil {
		t.Fatal(err)
	}
	h.list, at = overTCP(6e6), at.Add(2*time.Second)
	now, rows, err := p.look()
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].rate = rate(rows[i].key, now, before)
	}
	line := strings.Fields(table(rows, at, 1000)[2])
	if got, want := strings.Join(line, " "),
		"9 rping vrw_lo 0x000011 RC RTS 127.0.0.1:7174 3.00 0.00 3000.0 0.0"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}
