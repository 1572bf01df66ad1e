// Package rdmashow is "verbena rdma link|resource|statistic show" in the format of iproute2's rdma, and "verbena top".
// They ask the running programs (internal/control): a device in user space has no kernel that knows.
package rdmashow

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tools lists the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "rdma", Short: "devices, resources and counters, as iproute2's rdma shows them", Run: run},
		{Name: "top", Short: "QPs and their rates, live", Run: runTop},
	}
}

const usage = "[-j] [-p] link [show [DEV[/PORT]]]\n[-j] [-p] resource [show [DEV]]\n[-j] [-p] resource show qp|cm_id [link DEV[/PORT]]\n" +
	"[-j] [-p] statistic [show [link DEV[/PORT]]]\n[-j] [-p] statistic qp show [link DEV[/PORT]]"

// row is what one line or JSON object has, in order.
type row []field

type field struct {
	name  string
	value any
}

func (r row) text(head string) string {
	var b strings.Builder
	b.WriteString(head)
	for _, f := range r {
		fmt.Fprintf(&b, "%s %v ", f.name, f.value)
	}
	return b.String()
}

// MarshalJSON keeps the order.
func (r row) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, f := range r {
		if i > 0 {
			b = append(b, ',')
		}
		name, _ := json.Marshal(f.name)
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, name...), ':'), value...)
	}
	return append(b, '}'), nil
}

// line is a row with what stands before it in text and in JSON.
type line struct {
	head string
	json row
	row  row
}

func run(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, usage)
	asJSON := f.BoolP("json", "j", false, "as JSON")
	pretty := f.BoolP("pretty", "p", false, "indented JSON")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	what, words := "", f.Args()
	if len(words) > 0 {
		what, words = words[0], words[1:]
	}
	var lines []line
	var err error
	switch {
	case what != "" && strings.HasPrefix("link", what):
		lines, err = links(filter(words))
	case len(what) > 1 && strings.HasPrefix("resource", what):
		lines, err = resources(words)
	case what != "" && strings.HasPrefix("statistic", what):
		lines, err = statistics(words)
	default:
		return f.Misused(fmt.Sprintf("object %q: link, resource and statistic are there", what))
	}
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	if !*asJSON {
		for _, l := range lines {
			fmt.Fprintln(env.Stdout, l.row.text(l.head))
		}
		return 0
	}
	rows := make([]row, len(lines))
	for i, l := range lines {
		rows[i] = append(append(row{}, l.json...), l.row...)
	}
	enc := json.NewEncoder(env.Stdout)
	if *pretty {
		enc.SetIndent("", "    ")
	}
	if err := enc.Encode(rows); err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	return 0
}

// filter is the device that the words name, empty for all: what is not a keyword, without its port.
func filter(words []string) string {
	for _, w := range words {
		switch w {
		case "show", "list", "link", "qp", "cm_id":
		default:
			name, _, _ := strings.Cut(w, "/")
			return name
		}
	}
	return ""
}

func hasWord(words []string, want string) bool {
	for _, w := range words {
		if w == want {
			return true
		}
	}
	return false
}

// links lists the ports of this machine's devices, open or not.
func links(only string) (lines []line, err error) {
	devices, err := verbs.Devices()
	if err != nil && len(devices) == 0 {
		return nil, err
	}
	for i, d := range devices {
		if only != "" && d.Name() != only {
			continue
		}
		ctx, err := d.Open()
		if err != nil {
			return nil, err
		}
		p, err := ctx.QueryPort(1)
		ctx.Close()
		if err != nil {
			return nil, err
		}
		state := map[bool]string{true: "ACTIVE", false: "DOWN"}[p.State == verbs.PortActive]
		phys := map[bool]string{true: "LINK_UP", false: "DISABLED"}[p.PhysState == verbs.PhysLinkUp]
		l := at(i, d.Name())
		l.row = row{{"state", state}, {"physical_state", phys}}
		if name := d.Interface(); name != "" {
			l.row = append(l.row, field{"netdev", name})
			if ifi, err := net.InterfaceByName(name); err == nil {
				l.json = append(l.json[:len(l.json):len(l.json)], field{"netdev_index", ifi.Index})
			}
		}
		lines = append(lines, l)
	}
	return lines, missing(only, len(lines))
}

// at begins a line about a port.
func at(index int, device string) line {
	return line{
		head: fmt.Sprintf("link %s/1 ", device),
		json: row{{"ifindex", index}, {"ifname", device}, {"port", 1}},
	}
}

func missing(only string, n int) error {
	if only != "" && n == 0 {
		return fmt.Errorf("no program has a device %s open, and none is called so; verbena rdma link shows the devices", only)
	}
	return nil
}

// device is one device with what all programs have on it.
type device struct {
	control.Device
	users []user
}

type user struct {
	pid  int
	comm string
	dev  control.Device
}

// gather asks the programs, in the order of the devices' first appearance.
func gather(only string) (list []*device, err error) {
	reports, err := control.Reports()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*device)
	for _, r := range reports {
		for _, d := range r.Devices {
			if only != "" && d.Name != only {
				continue
			}
			all := byName[d.Name]
			if all == nil {
				all = &device{Device: control.Device{Name: d.Name, Interface: d.Interface}}
				byName[d.Name] = all
				list = append(list, all)
			}
			all.add(&d)
			all.users = append(all.users, user{r.PID, r.Comm, d})
		}
	}
	return list, nil
}

// add sums up.
func (d *device) add(o *control.Device) {
	d.Contexts += o.Contexts
	d.PDs += o.PDs
	d.CQs += o.CQs
	d.MRs += o.MRs
	d.SRQs += o.SRQs
	d.QPs = append(d.QPs, o.QPs...)
	d.CMIDs = append(d.CMIDs, o.CMIDs...)
	for _, c := range o.Counters {
		found := false
		for i := range d.Counters {
			if d.Counters[i].Name == c.Name {
				d.Counters[i].Value += c.Value
				found = true
			}
		}
		if !found {
			d.Counters = append(d.Counters, c)
		}
	}
}

// resources is "rdma resource".
func resources(words []string) (lines []line, err error) {
	only := filter(words)
	list, err := gather(only)
	if err != nil {
		return nil, err
	}
	for i, d := range list {
		if hasWord(words, "qp") {
			lines = append(lines, qps(i, d)...)
			continue
		}
		if hasWord(words, "cm_id") {
			lines = append(lines, cmIDs(i, d)...)
			continue
		}
		lines = append(lines, line{
			head: fmt.Sprintf("%d: %s: ", i, d.Name), json: row{{"ifindex", i}, {"ifname", d.Name}},
			row: row{{"pd", d.PDs}, {"cq", d.CQs}, {"qp", len(d.QPs)}, {"cm_id", len(d.CMIDs)}, {"mr", d.MRs}, {"ctx", d.Contexts}, {"srq", d.SRQs}},
		})
	}
	return lines, missing(only, len(list))
}

// qps is "rdma resource show qp".
func qps(index int, d *device) (lines []line) {
	for _, u := range d.users {
		for _, q := range u.dev.QPs {
			l := at(index, d.Name)
			l.row = row{{"lqpn", q.Num}}
			if q.Dest != 0 {
				l.row = append(l.row, field{"rqpn", q.Dest})
			}
			l.row = append(l.row, field{"type", q.Type}, field{"state", q.State})
			if q.Type != "UD" && q.Type != "GSI" {
				l.row = append(l.row, field{"rq-psn", q.RQPSN})
			}
			l.row = append(l.row, field{"sq-psn", q.SQPSN})
			if q.Type == "RC" || q.Type == "UC" {
				l.row = append(l.row, field{"path-mig-state", q.Mig})
			}
			l.row = append(l.row, field{"pdn", q.PD}, field{"pid", u.pid}, field{"comm", u.comm})
			lines = append(lines, l)
		}
	}
	return lines
}

// cmIDs is "rdma resource show cm_id".
func cmIDs(index int, d *device) (lines []line) {
	for _, u := range d.users {
		for _, c := range u.dev.CMIDs {
			l := at(index, d.Name)
			if c.QP != 0 {
				l.row = append(l.row, field{"lqpn", c.QP})
			}
			l.row = append(l.row, field{"qp-type", c.Type}, field{"state", c.State}, field{"ps", c.PS}, field{"pid", u.pid}, field{"comm", u.comm})
			if c.Src != "" {
				l.row = append(l.row, field{"src-addr", c.Src})
			}
			if c.Dst != "" {
				l.row = append(l.row, field{"dst-addr", c.Dst})
			}
			lines = append(lines, l)
		}
	}
	return lines
}

// statistics is "rdma statistic".
func statistics(words []string) (lines []line, err error) {
	only := filter(words)
	list, err := gather(only)
	if err != nil {
		return nil, err
	}
	for i, d := range list {
		if !hasWord(words, "qp") {
			l := at(i, d.Name)
			l.row = counters(nil, d.Counters)
			lines = append(lines, l)
			continue
		}
		for _, u := range d.users {
			for _, q := range u.dev.QPs {
				l := at(i, d.Name)
				l.row = counters(row{{"lqpn", q.Num}, {"pid", u.pid}, {"comm", u.comm}}, q.Counters)
				lines = append(lines, l)
			}
		}
	}
	return lines, missing(only, len(list))
}

func counters(r row, list []control.Counter) row {
	for _, c := range list {
		r = append(r, field{c.Name, c.Value})
	}
	return r
}
