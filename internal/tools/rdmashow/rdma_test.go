package rdmashow

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

// fakeHost has the data of a test.
type fakeHost struct {
	names []string
	links map[string][]port
	list  []control.Report
	mute  []control.Silent
	err   error
}

func (h *fakeHost) devices() ([]string, error)             { return h.names, h.err }
func (h *fakeHost) ports(name string) ([]port, error)      { return h.links[name], nil }
func (h *fakeHost) reports(bool) ([]control.Report, error) { return h.list, nil }
func (h *fakeHost) node(name string) (node, error) {
	n := node{"ca", "5054:00ff:fe77:0001", "5054:00ff:fe77:0001"}
	if name == "siw0" {
		n.kind = "rnic"
	}
	return n, nil
}
func (h *fakeHost) silent() []control.Silent { return h.mute }

func rdma(h host, line string) (status int, stdout, stderr string) {
	var o, e bytes.Buffer
	status = show(&tool.Env{Argv0: "verbena rdma", Stdout: &o, Stderr: &e}, h, strings.Fields(line))
	return status, o.String(), e.String()
}

// linux is the host of testdata/iproute2.txt: soft-RoCE with ibv_rc_pingpong, ibv_srq_pingpong -q 3,
// ibv_ud_pingpong and two rping (one of whose threads is listed as a process) on rxe0. Process 0 has the
// kernel's own objects.
func linux() *fakeHost {
	qp := func(num uint32, kind, state string, pd uint32) control.QP {
		return control.QP{Num: num, Type: kind, State: state, Mig: "MIGRATED", PD: pd}
	}
	server, client := qp(23, "RC", "RTS", 7), qp(22, "RC", "RTS", 6)
	server.Dest, server.RQPSN, server.SQPSN = 22, 15706306, 1462746
	client.Dest, client.RQPSN, client.SQPSN = 23, 1462746, 15706306
	program := func(pid int, comm string, d control.Device) control.Report {
		d.Name = "rxe0"
		if o := d.Objects; o != nil {
			d.PDs, d.CQs, d.MRs, d.SRQs, d.Contexts = len(o.PDs), len(o.CQs), len(o.MRs), len(o.SRQs), len(o.Contexts)
		}
		return control.Report{PID: pid, Comm: comm, Devices: []control.Device{d}}
	}
	return &fakeHost{
		names: []string{"rxe0", "siw0"},
		links: map[string][]port{"rxe0": {{"ACTIVE", "LINK_UP", "eth0", 2}}, "siw0": {{"ACTIVE", "LINK_UP", "eth1", 3}}},
		list: []control.Report{
			program(0, "ib_core", control.Device{PDs: 1, CQs: 1, QPs: []control.QP{qp(1, "GSI", "RTS", 0)},
				Counters: linuxCounters}),
			program(179, "rping",
				control.Device{Objects: &control.Objects{Contexts: []uint32{4}, PDs: []control.PD{{Num: 5, Context: 4}}}}),
			program(157, "ibv_rc_pingpong", control.Device{QPs: []control.QP{qp(17, "RC", "INIT", 1)}, Objects: &control.Objects{
				Contexts: []uint32{0}, PDs: []control.PD{{Num: 1, Users: 2}}, CQs: []control.CQ{{Num: 1, CQE: 511, Users: 2}},
				MRs: []control.MR{{Num: 0, LKey: 0x22c, Len: 4096, PD: 1}},
			}}),
			program(161, "ibv_srq_pingpon", control.Device{
				QPs: []control.QP{qp(18, "RC", "INIT", 2), qp(19, "RC", "INIT", 2), qp(20, "RC", "INIT", 2)},
				Objects: &control.Objects{
					Contexts: []uint32{1}, PDs: []control.PD{{Num: 2, Users: 5, Context: 1}},
					CQs:  []control.CQ{{Num: 2, CQE: 511, Users: 6, Context: 1}},
					MRs:  []control.MR{{Num: 1, LKey: 0x347, Len: 4096, PD: 2}},
					SRQs: []control.SRQ{{Num: 0, Type: "BASIC", QPs: []uint32{18, 19, 20}, PD: 2}},
				},
			}),
			program(165, "ibv_ud_pingpong", control.Device{QPs: []control.QP{qp(21, "UD", "INIT", 3)}, Objects: &control.Objects{
				Contexts: []uint32{2}, PDs: []control.PD{{Num: 3, Users: 2, Context: 2}},
				CQs: []control.CQ{{Num: 3, CQE: 511, Users: 2, Context: 2}},
				MRs: []control.MR{{Num: 2, LKey: 0x414, Len: 1064, PD: 3}},
			}}),
			program(170, "rping", control.Device{
				QPs: []control.QP{server},
				CMIDs: []control.CMID{
					{Num: 0, Type: "RC", State: "LISTEN", PS: "TCP", Src: "[fd77::2]:7174"},
					{Num: 2, QP: 23, Type: "RC", State: "CONNECT", PS: "TCP", Src: "[fd77::2]:7174", Dst: "[fd77::2]:59076"},
				},
				Objects: &control.Objects{
					Contexts: []uint32{3}, PDs: []control.PD{{Num: 4, Context: 3}, {Num: 7, Users: 4, Context: 3}},
					CQs: []control.CQ{{Num: 5, CQE: 63, Users: 2, Context: 3}},
					MRs: []control.MR{{Num: 7, LKey: 0x9b6, Len: 16, PD: 7}, {Num: 8, LKey: 0xa57, Len: 16, PD: 7},
						{Num: 9, RKey: 0xb68, LKey: 0xb68, Len: 64, PD: 7}},
				},
			}),
			program(175, "rping", control.Device{
				QPs: []control.QP{client},
				CMIDs: []control.CMID{{Num: 1, QP: 22, Type: "RC", State: "CONNECT", PS: "TCP", Src: "[fd77::2]:59076",
					Dst: "[fd77::2]:7174"}},
				Objects: &control.Objects{
					PDs: []control.PD{{Num: 6, Users: 5, Context: 4}}, CQs: []control.CQ{{Num: 4, CQE: 63, Users: 2, Context: 4}},
					MRs: []control.MR{
						{Num: 3, LKey: 0x5cf, Len: 16, PD: 6}, {Num: 4, LKey: 0x628, Len: 16, PD: 6},
						{Num: 5, RKey: 0x7fb, LKey: 0x7fb, Len: 64, PD: 6}, {Num: 6, RKey: 0x856, LKey: 0x856, Len: 64, PD: 6},
					},
				},
			}),
		},
	}
}

var linuxCounters = []control.Counter{
	{Name: "sent_pkts", Value: 22739}, {Name: "rcvd_pkts", Value: 22739}, {Name: "duplicate_request"},
	{Name: "out_of_seq_request"}, {Name: "rcvd_rnr_err"},
	{Name: "send_rnr_err"}, {Name: "rcvd_seq_err"}, {Name: "ack_deferred"}, {Name: "retry_exceeded_err"},
	{Name: "retry_rnr_exceeded_err"},
	{Name: "completer_retry_err"}, {Name: "send_err"}, {Name: "link_downed"}, {Name: "rdma_sends", Value: 7582},
	{Name: "rdma_recvs", Value: 7582},
}

// The output equals that of iproute2 6.1 for the same objects of Linux 6.1 byte for byte. The file is its
// output with one change: it repeats the QP numbers of an SRQ in place of the program's name.
func TestAsIproute2(t *testing.T) {
	b, err := os.ReadFile("testdata/iproute2.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := strings.Split(string(b), "$ rdma ")[1:]
	if len(cases) < 30 {
		t.Fatalf("%d cases", len(cases))
	}
	for _, c := range cases {
		line, want, _ := strings.Cut(c, "\n")
		status, out, errs := rdma(linux(), line)
		if status != 0 || out != want || errs != "" {
			t.Errorf("rdma %s: status %d %s\n%s\nwant\n%s", line, status, errs, out, want)
		}
		if strings.HasPrefix(line, "-j") && !json.Valid([]byte(out)) {
			t.Errorf("rdma %s: invalid JSON", line)
		}
	}
}

// Linux has counters of QPs only on some adapters, so these lines follow iproute2's source (stat.c) instead
// of its output.
func TestCountersOfQPs(t *testing.T) {
	h := linux()
	h.list[6].Devices[0].QPs[0].Counters = []control.Counter{{Name: "out_of_sequence", Value: 3},
		{Name: "rx_data_bytes", Value: 1 << 40}}
	for line, want := range map[string]string{
		"statistic qp show pid 175": "link rxe0/1 cntn 22 qp-type RC pid 175 comm rping " +
			"out_of_sequence 3 rx_data_bytes 1099511627776 \n    LQPN: <22>\n",
		"-p stat qp lis link rxe0 lqpn 22": "link rxe0/1 cntn 22 qp-type RC pid 175 comm rping \n" +
			"    out_of_sequence 3 \n    rx_data_bytes 1099511627776 \n" +
			"    LQPN: <22>\n",
		"-j statistic qp show cntn 22 qp-type rc": `[{"ifindex":0,"ifname":"rxe0","port":1,"cntn":22,` +
			`"qp-type":"RC","pid":175,"comm":"rping",` +
			`"out_of_sequence":3,"rx_data_bytes":1099511627776,"lqpn":[22]}]` + "\n",
		"-j statistic qp show lqpn 99":    "[]\n",
		"-j -p statistic qp show lqpn 99": "[ ]\n",
		"statistic qp show lqpn 99":       "",
		"statistic show link siw0":        "", // no program has counters
	} {
		if status, out, errs := rdma(h, line); status != 0 || out != want || errs != "" {
			t.Errorf("rdma %s: status %d %s\n%s\nwant\n%s", line, status, errs, out, want)
		}
	}
}

// The counters of several programs are added.
func TestCountersAddUp(t *testing.T) {
	h := &fakeHost{names: []string{"a"}, list: []control.Report{
		{PID: 2, Devices: []control.Device{{Name: "a",
			Counters: []control.Counter{{Name: "x", Value: 5}, {Name: "y", Value: 1}}}}},
		{PID: 1, Devices: []control.Device{{Name: "a",
			Counters: []control.Counter{{Name: "y", Value: 2}, {Name: "x", Value: 7}}}}},
	}}
	if _, out, _ := rdma(h, "statistic"); out != "link a/1 y 3 x 12 \n" {
		t.Errorf("%q", out)
	}
}

// Types that soft-RoCE lacks, and a device that only a program has.
func TestOtherKinds(t *testing.T) {
	h := &fakeHost{names: []string{"vrb_a"}, list: []control.Report{{PID: 7, Comm: "p", Devices: []control.Device{{
		Name: "vrb_gone",
		QPs: []control.QP{{Num: 5, Type: "XRC_SEND", State: "RTS", Mig: "ARMED", SQPSN: 3, PD: 1},
			{Num: 6, Type: "XRC_RECV", State: "RTR", Mig: "MIGRATED"}},
		CMIDs: []control.CMID{{Num: 1, State: "IDLE", PS: "IPOIB"},
			{Num: 2, State: "ADDR_BOUND", PS: "UDP", Src: "10.0.0.1:9"}},
		Objects: &control.Objects{SRQs: []control.SRQ{
			{Num: 1, Type: "XRC", PD: 1, CQ: 4}, {Num: 2, Type: "TM", QPs: []uint32{3, 7, 8, 9, 11}, PD: 1, CQ: 4},
		}},
	}}}}}
	for line, want := range map[string]string{
		"res show qp": "link vrb_gone/1 lqpn 5 type XRC_INI state RTS sq-psn 3 path-mig-state ARMED pdn 1 pid 7 comm p \n" +
			"link vrb_gone/1 lqpn 6 type XRC_TGT state RTR sq-psn 0 path-mig-state MIGRATED pid 7 comm p \n",
		"res show qp rqpn 0": "", // neither QP has a remote QPN
		"res show cm_id": "link vrb_gone/1 cm-idn 1 state IDLE ps IPoIB pid 7 comm p \n" +
			"link vrb_gone/1 cm-idn 2 state ADDR_BOUND ps UDP pid 7 comm p src-addr 10.0.0.1:9 dst-addr 0.0.0.0:0 \n",
		"res show srq": "dev vrb_gone srqn 1 type XRC pdn 1 cqn 4 pid 7 comm p \n" +
			"dev vrb_gone srqn 2 type TM lqpn 3,7-9,11 pdn 1 cqn 4 pid 7 comm p \n",
		"res show srq lqpn 8": "dev vrb_gone srqn 2 type TM lqpn 3,7-9,11 pdn 1 cqn 4 pid 7 comm p \n",
		"-j res show srq srqn 2": `[{"ifindex":1,"ifname":"vrb_gone","srqn":2,"type":"TM",` +
			`"lqpn":["3","7-9","11"],"pdn":1,"cqn":4,"pid":7,"comm":"p"}]` + "\n",
		"res": "0: vrb_a: pd 0 cq 0 qp 0 cm_id 0 mr 0 ctx 0 srq 0 \n" +
			"1: vrb_gone: pd 0 cq 0 qp 2 cm_id 2 mr 0 ctx 0 srq 0 \n",
	} {
		if status, out, errs := rdma(h, line); status != 0 || out != want || errs != "" {
			t.Errorf("rdma %s: status %d %s\n%s\nwant\n%s", line, status, errs, out, want)
		}
	}
}

// A process of another PID namespace has no process number in this one.
func TestResourceOfOtherPIDNamespace(t *testing.T) {
	h := &fakeHost{names: []string{"vrb_a"}, list: []control.Report{{Elsewhere: "65534/1", Comm: "p",
		Devices: []control.Device{{Name: "vrb_a", CMIDs: []control.CMID{{Num: 1, State: "IDLE", PS: "IPOIB"}}}}}}}
	for line, want := range map[string]string{
		"res show cm_id":       "link vrb_a/1 cm-idn 1 state IDLE ps IPoIB comm p \n",
		"res show cm_id pid 0": "",
	} {
		if status, out, errs := rdma(h, line); status != 0 || out != want || errs != "" {
			t.Errorf("rdma %s: status %d %s\n%s\nwant\n%s", line, status, errs, out, want)
		}
	}
}

// Usage errors name the allowed words.
func TestMisused(t *testing.T) {
	for line, want := range map[string]string{
		"frob":                  `unknown object "frob"; there are dev, link, resource, statistic, monitor`,
		"link frob":             `unknown link command "frob"; there are show, list`,
		"link show nosuch":      `no device "nosuch"; there are rxe0, siw0`,
		"link show nosuch/1":    `no device "nosuch"; there are rxe0, siw0`,
		"link show rxe0/2":      `rxe0: port "2": must be 1`,
		"link show rxe0/1 more": `unknown parameter "more"; link show takes one DEV/PORT`,
		"resource frob":         `unknown resource command "frob"; there are show, list`,
		"resource show frob": `unknown object "frob"; there are qp, cm_id, cq, mr, pd, ctx, srq, ` +
			`or the name of a device: rxe0, siw0`,
		"resource show qp frob 3":          `unknown filter "frob"; the filters are link, lqpn,`,
		"resource show qp lqpn":            `"lqpn": the filter needs a value; the filters are link, lqpn,`,
		"resource show qp link rxe0 lqpn":  `"lqpn": the filter needs a value`,
		"resource show qp link nosuch":     `no device "nosuch"; there are rxe0, siw0`,
		"resource show qp dev rxe0":        `unknown filter "dev"; the filters are link, lqpn,`,
		"resource show mr link rxe0":       `unknown filter "link"; the filters are dev, rkey,`,
		"resource show qp lqpn seventeen":  `lqpn "seventeen": must be numbers and ranges, such as 17 or 17,20-30`,
		"resource show qp lqpn 20-17":      `lqpn "20-17": must be numbers and ranges`,
		"resource show qp lqpn 1-2-3":      `must be numbers and ranges`,
		"resource show qp lqpn -":          `must be numbers and ranges`,
		"statistic frob":                   `unknown statistic command "frob"; there are show, list, qp`,
		"statistic show rxe0":              `unknown parameter "rxe0"; must be link DEV/PORT`,
		"statistic show link":              `"link": the filter needs a value`,
		"statistic show link rxe0/1 pid 1": `unknown filter "pid"; the filters are link`,
		"statistic qp frob":                `unknown statistic command "frob"; there are show, list`,
		"-x link":                          "unknown option -x",
		"--frob link":                      "unknown option --frob",
	} {
		status, out, errs := rdma(linux(), line)
		if status != 1 || out != "" || !strings.HasPrefix(errs, "verbena rdma: ") || !strings.Contains(errs, want) {
			t.Errorf("rdma %s: status %d %q %s, want %s", line, status, out, errs, want)
		}
	}
	if status, _, errs := rdma(&fakeHost{}, "link show x"); status != 1 ||
		!strings.Contains(errs, "there are no devices") {
		t.Errorf("no devices: status %d %s", status, errs)
	}
	if status, _, errs := rdma(&fakeHost{err: errors.New("no interfaces")}, "resource"); status != 1 ||
		!strings.Contains(errs, "no interfaces") {
		t.Errorf("devices cannot be listed: status %d %s", status, errs)
	}
}

// Help is printed without a command, and where iproute2 prints it.
func TestHelp(t *testing.T) {
	for _, line := range []string{"", "help", "link help", "resource help", "statistic qp help", "-h"} {
		if status, out, errs := rdma(linux(), line); status != 0 ||
			!strings.Contains(out, "resource show qp|cm_id [link DEV[/PORT]]") || errs != "" {
			t.Errorf("rdma %s: status %d %q %q", line, status, out, errs)
		}
	}
}

// Programs that do not answer are named; the others are shown.
func TestSilentPrograms(t *testing.T) {
	h := linux()
	h.mute = []control.Silent{{Name: "@verbena-control/1000/42", Err: errors.New("no answer")}}
	if status, out, errs := rdma(h, "res show ctx pid 157"); status != 0 || out == "" ||
		errs != "verbena rdma: @verbena-control/1000/42: no answer\n" {
		t.Errorf("status %d %q %q", status, out, errs)
	}
}

// evil is a name that would command a terminal, in all ways: escapes, C1 controls, DEL, another direction, bytes that
// are no text.
const evil = "x\x1b[31mRED\x1b]0;owned\a\u009b2J\x7f\u202e\xff\n\"\\"

// unseen lists what of an output is not printable.
func unseen(out string) (bad []rune) {
	for _, r := range out {
		if !strconv.IsPrint(r) && r != '\n' {
			bad = append(bad, r)
		}
	}
	return bad
}

// Control characters in a program's name reach neither the terminal nor JSON.
func TestHostileNames(t *testing.T) {
	dev := control.Device{
		Name: "a" + evil, Interface: evil, QPs: []control.QP{
			{Num: 2, Type: evil, State: evil, Mig: evil, Peer: evil, Counters: []control.Counter{{Name: evil}}},
			{Num: 3, Type: "RC", State: evil, Mig: evil, Peer: evil},
		},
		CMIDs:    []control.CMID{{Num: 1, QP: 2, Type: evil, State: evil, PS: evil, Src: evil, Dst: evil}},
		Counters: []control.Counter{{Name: evil}},
		Objects:  &control.Objects{SRQs: []control.SRQ{{Type: evil}}, Contexts: []uint32{1}},
	}
	h := &fakeHost{
		names: []string{"a"}, list: []control.Report{{PID: 1, Comm: evil, Devices: []control.Device{dev}}},
		mute: []control.Silent{{Name: "@verbena-control/0/9" + evil, Err: errors.New(evil)}},
	}
	for _, line := range []string{
		"res show qp", "res show cm_id", "res show srq", "res show ctx", "res", "statistic", "statistic qp",
		"res show qp link b", "res b",
	} {
		for _, option := range []string{"", "-j ", "-j -p "} {
			status, out, errs := rdma(h, option+line)
			named := strings.Contains(errs, `"@verbena-control/0/9x\x1b`)
			if bad := unseen(out + errs); bad != nil || status == 0 && !named {
				t.Errorf("rdma %s%s: %q in %q and %q", option, line, bad, out, errs)
			}
			if status == 0 && option != "" && !json.Valid([]byte(out)) {
				t.Errorf("rdma %s%s: not JSON: %q", option, line, out)
			}
		}
	}
	out, err := play(t, [][]control.Report{h.list, h.list}, func(p *topper) { p.host.(*movie).mute = h.mute })
	if bad := unseen(out); bad != nil || err != nil {
		t.Errorf("top: %q in %q, %v", bad, out, err)
	}
}
