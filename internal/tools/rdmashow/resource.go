package rdmashow

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/printable"
)

// resources is "rdma resource".
func (v *viewer) resources(words []string) error {
	return pick("resource command", words, []command{{"show", v.showResources}, {"list", v.showResources}})
}

// shower makes the rows of one kind of object on a device.
type shower struct {
	name    string
	objects bool   // it needs the objects, not only their number
	where   string // filter that selects a device: link or dev
	kinds   []kind // available filters
	rows    func(d *device, u *user) []row
}

var showers = []shower{
	{"qp", false, "link", append(numbers("lqpn", "rqpn", "pid", "sq-psn", "rq-psn", "pdn", "src-port",
		"dst-port"), strs("type", "path-mig-state", "state", "src-addr", "dst-addr")...), qps},
	{"cm_id", false, "link", append(numbers("lqpn", "pid", "src-port", "dst-port", "cm-idn"),
		strs("qp-type", "state", "ps", "src-addr", "dst-addr")...), cmIDs},
	{"cq", true, "dev", numbers("users", "pid", "cqn", "ctxn"), cqs},
	{"mr", true, "dev", numbers("rkey", "lkey", "mrlen", "pid", "mrn", "pdn"), mrs},
	{"pd", true, "dev", numbers("users", "pid", "ctxn", "pdn"), pds},
	{"ctx", true, "dev", numbers("pid", "ctxn"), contexts},
	{"srq", true, "dev", append(numbers("pid", "srqn", "pdn", "cqn", "lqpn"), strs("type")...), srqs},
}

// showResources counts the objects of all devices or of one, or shows those of a kind.
func (v *viewer) showResources(words []string) error {
	if len(words) == 0 {
		return v.summary("")
	}
	var commands []command
	for _, s := range showers {
		commands = append(commands, command{s.name, func(w []string) error { return v.showObjects(&s, w) }})
	}
	err := pick("object", words, commands)
	if findCommand(words[0], commands) || len(words) > 1 {
		return err
	}
	if names, lerr := v.host.devices(); lerr != nil || !slices.Contains(names, words[0]) {
		return fmt.Errorf("%w, or the name of a device: %s", err, printable.List(names))
	}
	return v.summary(words[0])
}

func findCommand(word string, commands []command) bool {
	return slices.ContainsFunc(commands, func(c command) bool { return isPrefix(word, c.name, 1) })
}

func (v *viewer) summary(only string) error {
	list, err := v.gather(false, only)
	if err != nil {
		return err
	}
	for _, d := range list {
		var n control.Device
		for _, u := range d.users {
			n.PDs += u.dev.PDs
			n.CQs += u.dev.CQs
			n.MRs += u.dev.MRs
			n.SRQs += u.dev.SRQs
			n.Contexts += u.dev.Contexts
			n.QPs = append(n.QPs, u.dev.QPs...)
			n.CMIDs = append(n.CMIDs, u.dev.CMIDs...)
		}
		r := row{head: fmt.Sprintf("%d: %s: ", d.index, printable.Text(d.name)), place: d.onDevice().place}
		r.fields = []field{
			{"pd", n.PDs}, {"cq", n.CQs}, {"qp", len(n.QPs)}, {"cm_id", len(n.CMIDs)}, {"mr", n.MRs}, {"ctx", n.Contexts},
			{"srq", n.SRQs},
		}
		v.rows = append(v.rows, r)
	}
	return nil
}

// showObjects shows the objects of one kind that pass the filters.
func (v *viewer) showObjects(s *shower, words []string) error {
	where, filters, err := parseFilters(words, s.where, s.kinds)
	if err != nil {
		return err
	}
	list, err := v.gather(s.objects, where)
	if err != nil {
		return err
	}
	for _, d := range list {
		var rows []row
		for i := range d.users {
			if u := &d.users[i]; !s.objects || u.dev.Objects != nil {
				rows = append(rows, slices.DeleteFunc(s.rows(d, u), func(r row) bool { return !r.passes(filters) })...)
			}
		}
		slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.number(), b.number()) })
		v.rows = append(v.rows, rows...)
	}
	return nil
}

// number returns the object's number, its first field.
func (r *row) number() uint64 { return toUint(r.fields[0].value) }

// kernelNames maps QP types to the kernel's names where they differ.
var kernelNames = map[string]string{"XRC_SEND": "XRC_INI", "XRC_RECV": "XRC_TGT"}

func qpType(s string) string {
	if k, ok := kernelNames[s]; ok {
		return k
	}
	return s
}

func qps(d *device, u *user) (rows []row) {
	for _, q := range u.dev.QPs {
		if !d.asked(q.Port) {
			continue
		}
		r := d.onLink(q.Port)
		kind := qpType(q.Type)
		connected := kind == "RC" || kind == "UC"
		r.add("lqpn", q.Num)
		if connected {
			r.add("rqpn", q.Dest)
		}
		r.add("type", kind)
		r.add("state", q.State)
		if connected {
			r.add("rq-psn", q.RQPSN)
		}
		r.add("sq-psn", q.SQPSN)
		if connected || strings.HasPrefix(kind, "XRC") {
			r.add("path-mig-state", q.Mig)
		}
		if q.PD != 0 {
			r.add("pdn", q.PD)
		}
		r.owner(u)
		if q.Local != "" { // iWARP
			r.endpoint("src", q.Local, "")
			r.endpoint("dst", q.Peer, q.Local)
		}
		rows = append(rows, r)
	}
	return rows
}

func cmIDs(d *device, u *user) (rows []row) {
	for _, c := range u.dev.CMIDs {
		if !d.asked(c.Port) {
			continue
		}
		r := d.onLink(c.Port)
		r.add("cm-idn", c.Num)
		if c.QP != 0 {
			r.add("lqpn", c.QP)
			r.add("qp-type", qpType(c.Type))
		}
		r.add("state", c.State)
		r.add("ps", map[string]string{"TCP": "TCP", "UDP": "UDP", "IB": "IPoIB", "IPOIB": "IPoIB"}[c.PS])
		r.owner(u)
		r.endpoint("src", c.Src, "")
		r.endpoint("dst", c.Dst, c.Src)
		rows = append(rows, r)
	}
	return rows
}

// endpoint adds an address with its port, without brackets. Without an address it adds the unspecified one
// of the other's family, as the kernel does; without either it adds nothing.
func (r *row) endpoint(which, addr, other string) {
	a, err := netip.ParseAddrPort(addr)
	if o, oerr := netip.ParseAddrPort(other); err != nil && oerr == nil {
		a, err = netip.AddrPortFrom(netip.IPv6Unspecified(), 0), nil
		if o.Addr().Is4() {
			a = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
		}
	}
	if err != nil {
		return
	}
	ip := a.Addr().WithZone("").String()
	r.add(which+"-addr", fmt.Sprintf("%s:%d", ip, a.Port()))
	r.hidden = append(r.hidden, field{which + "-addr", ip}, field{which + "-port", a.Port()})
}

func pds(d *device, u *user) (rows []row) {
	for _, p := range u.dev.Objects.PDs {
		r := d.onDevice()
		r.fields = []field{{"pdn", p.Num}, {"local_dma_lkey", hex(0)}, {"users", p.Users}, {"ctxn", p.Context}}
		r.owner(u)
		rows = append(rows, r)
	}
	return rows
}

func mrs(d *device, u *user) (rows []row) {
	for _, m := range u.dev.Objects.MRs {
		r := d.onDevice()
		r.fields = []field{{"mrn", m.Num}, {"rkey", hex(m.RKey)}, {"lkey", hex(m.LKey)}, {"mrlen", m.Len}, {"pdn", m.PD}}
		r.owner(u)
		rows = append(rows, r)
	}
	return rows
}

func cqs(d *device, u *user) (rows []row) {
	for _, c := range u.dev.Objects.CQs {
		r := d.onDevice()
		r.fields = []field{{"cqn", c.Num}, {"cqe", c.CQE}, {"users", c.Users}, {"adaptive-moderation", onOff(false)},
			{"ctxn", c.Context}}
		r.owner(u)
		rows = append(rows, r)
	}
	return rows
}

func contexts(d *device, u *user) (rows []row) {
	for _, c := range u.dev.Objects.Contexts {
		r := d.onDevice()
		r.add("ctxn", c)
		r.owner(u)
		rows = append(rows, r)
	}
	return rows
}

func srqs(d *device, u *user) (rows []row) {
	for _, s := range u.dev.Objects.SRQs {
		r := d.onDevice()
		r.fields = []field{{"srqn", s.Num}, {"type", s.Type}}
		if len(s.QPs) > 0 {
			r.add("lqpn", spans(s.QPs))
		}
		r.hidden = []field{{"lqpn", counted(s.QPs)}}
		r.add("pdn", s.PD)
		if s.CQ != 0 {
			r.add("cqn", s.CQ)
		}
		r.owner(u)
		rows = append(rows, r)
	}
	return rows
}

// spans returns the numbers in order, as 17, 18-33.
func spans(nums []uint32) (out list) {
	for i := 0; i < len(nums); {
		k := i
		for k+1 < len(nums) && nums[k+1] == nums[k]+1 {
			k++
		}
		if k == i {
			out = append(out, fmt.Sprint(nums[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", nums[i], nums[k]))
		}
		i = k + 1
	}
	return out
}
