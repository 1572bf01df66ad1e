package rdmashow

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/control"
	"github.com/verbena-rdma/verbena/internal/printable"
	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/verbs"
)

// host is the source of the data: the devices of this machine and the reports of its programs.
type host interface {
	devices() ([]string, error)
	ports(device string) ([]port, error) // from port 1 on
	node(device string) (node, error)
	reports(objects bool) ([]control.Report, error)
	silent() []control.Silent // programs that did not answer
}

// port is the state of a port.
type port struct {
	state, phys string
	netdev      string // empty if the device has none
	netdevIndex int    // 0 if the interface does not exist
}

// node is what identifies a device.
type node struct{ kind, guid, system string }

// nodeKinds are iproute2's names.
var nodeKinds = map[verbs.NodeType]string{verbs.NodeCA: "ca", verbs.NodeSwitch: "switch", verbs.NodeRouter: "router",
	verbs.NodeRNIC: "rnic", verbs.NodeUSNIC: "usnic", verbs.NodeUSNICUDP: "usnic_dp", verbs.NodeUnspecified: "unspecified"}

// system is this machine.
type system struct{ mute []control.Silent }

func (*system) devices() (names []string, err error) {
	list, err := verbs.Devices()
	if len(list) > 0 {
		err = nil
	}
	return nearest.Names(list), err
}

// open opens a device of this machine.
func open(device string) (*verbs.Context, error) {
	list, err := verbs.Devices()
	i := slices.IndexFunc(list, func(d *verbs.Device) bool { return d.Name() == device })
	if i < 0 {
		return nil, fmt.Errorf("%s was removed meanwhile (%v)", device, err)
	}
	return list[i].Open()
}

func (*system) ports(device string) (all []port, err error) {
	ctx, err := open(device)
	if err != nil {
		return nil, err
	}
	defer ctx.Close()
	a, err := ctx.QueryDevice()
	if err != nil {
		return nil, err
	}
	gids, err := ctx.QueryGIDTable()
	if err != nil {
		return nil, err
	}
	for n := uint8(1); n <= a.PhysPortCnt; n++ {
		attr, err := ctx.QueryPort(n)
		if err != nil {
			return nil, err
		}
		own, netdev := ctx.Device().Interface(), portrate.Interface(gids, int(n))
		if n == 1 {
			netdev = cmp.Or(own, netdev)
		} else {
			netdev = cmp.Or(netdev, own)
		}
		all = append(all, portOf(&attr, netdev))
	}
	return all, nil
}

// portOf returns the state of a port with a network interface.
func portOf(a *verbs.PortAttr, netdev string) port {
	p := port{state: "DOWN", phys: "DISABLED", netdev: netdev}
	if a.State == verbs.PortActive {
		p.state = "ACTIVE"
	}
	if a.PhysState == verbs.PhysLinkUp {
		p.phys = "LINK_UP"
	}
	if ifi, err := net.InterfaceByName(netdev); err == nil {
		p.netdevIndex = ifi.Index
	}
	return p
}

func (*system) node(device string) (node, error) {
	ctx, err := open(device)
	if err != nil {
		return node{}, err
	}
	defer ctx.Close()
	a, err := ctx.QueryDevice()
	return node{cmp.Or(nodeKinds[ctx.Device().NodeType()], "unknown"), a.NodeGUID.String(), a.SysImageGUID.String()}, err
}

func (s *system) reports(objects bool) (list []control.Report, err error) {
	list, s.mute, err = control.Reports(objects)
	return list, err
}

func (s *system) silent() []control.Silent { return s.mute }

// place is the device or port that the words name.
type place struct {
	device string // empty for all
	port   int    // 0 for all
	none   bool   // matches nothing: objects without a port, which do not exist
}

// parsePlace parses DEV, DEV/, DEV/PORT and DEV/-, and checks that the device exists.
func parsePlace(s string, devices []string) (p place, err error) {
	name, number, _ := strings.Cut(s, "/")
	switch {
	case s == "":
		return p, nil
	case len(devices) == 0:
		return p, fmt.Errorf("no device %q: there are no devices: run verbena doctor", name)
	case !slices.Contains(devices, name):
		return p, fmt.Errorf("no device %q; there are %s", name, printable.List(devices))
	}
	p.device = name
	switch number {
	case "":
	case "-":
		p.none = true
	default:
		if p.port, err = strconv.Atoi(number); err != nil || p.port < 1 || p.port > math.MaxUint8 {
			return p, fmt.Errorf("%s: port %q: must be the number of a port", printable.Text(name), number)
		}
	}
	return p, nil
}

// check returns an error if the device, one of this machine, does not have the port.
func (p *place) check(h host) error {
	if p.port <= 1 {
		return nil
	}
	ports, err := h.ports(p.device)
	if err == nil && p.port > len(ports) {
		err = fmt.Errorf("%s: port %q: must be %s", printable.Text(p.device), strconv.Itoa(p.port),
			portrate.Range(len(ports)))
	}
	return err
}

func (p *place) has(device string) bool { return !p.none && (p.device == "" || p.device == device) }

// device is a device with the programs that have it open.
type device struct {
	index int
	name  string
	port  int // the port that is asked for; 0: all
	users []user
}

// asked reports whether the command is about a port. 0, of objects without a port, counts as 1.
func (d *device) asked(port int) bool { return d.port == 0 || d.port == max(port, 1) }

type user struct {
	pid  int    // 0: in another PID namespace
	id   string // of Report.ID
	comm string
	dev  control.Device
}

// gather asks the programs. It lists the devices of this machine, then those that only programs have.
func (v *viewer) gather(objects bool, where string) (list []*device, err error) {
	names, err := v.host.devices()
	if err != nil {
		return nil, err
	}
	reports, err := v.host.reports(objects)
	if err != nil {
		return nil, err
	}
	own := len(names)
	for _, r := range reports {
		for _, d := range r.Devices {
			if !slices.Contains(names, d.Name) {
				names = append(names, d.Name)
			}
		}
	}
	p, err := parsePlace(where, names)
	if err == nil && slices.Contains(names[:own], p.device) {
		err = p.check(v.host)
	}
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		if p.has(name) {
			list = append(list, &device{i, name, p.port, usersOf(name, reports)})
		}
	}
	return list, nil
}

func usersOf(name string, reports []control.Report) (list []user) {
	for _, r := range reports {
		for _, d := range r.Devices {
			if d.Name == name {
				list = append(list, user{r.PID, r.ID(), r.Comm, d})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b user) int { return a.pid - b.pid })
	return list
}

// onLink begins a row for a port.
func (d *device) onLink(port int) row {
	port = max(port, 1)
	return row{
		head:  fmt.Sprintf("link %s/%d ", printable.Text(d.name), port),
		place: []field{{"ifindex", d.index}, {"ifname", d.name}, {"port", port}},
	}
}

// onDevice begins a row for a device.
func (d *device) onDevice() row {
	return row{
		head:  fmt.Sprintf("dev %s ", printable.Text(d.name)),
		place: []field{{"ifindex", d.index}, {"ifname", d.name}},
	}
}

func (r *row) add(name string, value any) { r.fields = append(r.fields, field{name, value}) }

// owner adds the owning process. One of another PID namespace has no number here.
func (r *row) owner(u *user) {
	if u.pid != 0 {
		r.add("pid", u.pid)
	}
	r.add("comm", u.comm)
}
