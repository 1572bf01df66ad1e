// Package ibstat has the tools that show the ports of devices with the output of those that administrators of
// InfiniBand know: ibstat, ibstatus, show_gids and ibdev2netdev; and ibping. It imports verbs, rdmacm
// and internal/tools/{nearest,portrate,tool}.
package ibstat

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tools returns the programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "ibstat", Short: "the devices and their ports", Run: runStat},
		{Name: "ibstatus", Short: "the ports' states and rates", Run: runStatus},
		{Name: "show_gids", Short: "the GIDs of the ports", Run: runGIDs},
		{Name: "ibdev2netdev", Short: "the network interfaces of the devices", Run: runNetDev},
		{Name: "ibping", Short: "the time that a host's connection manager takes to answer", Run: runPing},
	}
}

// device is what the tools print about a device.
type device struct {
	name, netdev string
	adapter      bool // of the machine, not a software device
	attr         verbs.DeviceAttr
	ports        []verbs.PortAttr // from port 1 on
	gids         []verbs.GIDEntry
	only         []int // the ports that were asked for; nil: all
}

// shows reports whether a port is to be printed.
func (d *device) shows(port int) bool { return len(d.only) == 0 || slices.Contains(d.only, port) }

// devices returns the devices whose names are in only, or all. DEV:PORT stands for one port of DEV.
func devices(only []string) (out []*device, err error) {
	all, err := verbs.Devices()
	if err != nil && len(all) == 0 {
		return nil, err
	}
	names, ports := nearest.Names(all), make(map[string][]string)
	for _, o := range only {
		name, port, _ := strings.Cut(o, ":")
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("no device is named %q%s", name, nearest.Instead(all))
		}
		ports[name] = append(ports[name], port)
	}
	for _, d := range all {
		wanted, ok := ports[d.Name()]
		if len(only) > 0 && !ok {
			continue
		}
		info, err := query(d)
		if err != nil {
			return nil, err
		}
		if err := info.choose(wanted); err != nil {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// choose sets which ports are shown. An empty word stands for all.
func (d *device) choose(ports []string) error {
	if slices.Contains(ports, "") {
		return nil
	}
	for _, p := range ports {
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > len(d.ports) {
			return fmt.Errorf("%s: port %q: must be %s", d.name, p, portrate.Range(len(d.ports)))
		}
		d.only = append(d.only, n)
	}
	return nil
}

func query(d *verbs.Device) (*device, error) {
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer ctx.Close()
	info := &device{name: d.Name(), netdev: d.Interface(), adapter: d.Provider() == "hw"}
	if info.attr, err = ctx.QueryDevice(); err != nil {
		return nil, err
	}
	for n := uint8(1); n <= info.attr.PhysPortCnt; n++ {
		p, err := ctx.QueryPort(n)
		if err != nil {
			return nil, err
		}
		info.ports = append(info.ports, p)
	}
	info.gids, err = ctx.QueryGIDTable()
	return info, err
}

func runStat(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options] [DEV]")
	names := f.BoolP("list_of_cas", "l", false, "print only the names")
	short := f.BoolP("short", "s", false, "omit the ports")
	guids := f.BoolP("port_list", "p", false, "print only the GUIDs of the ports")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 1 {
		return f.Misused("more than one device")
	}
	ds, err := devices(f.Args())
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	for _, d := range ds {
		switch {
		case *names:
			fmt.Fprintln(env.Stdout, d.name)
		case *guids:
			for i := range d.ports {
				if d.shows(i + 1) {
					fmt.Fprintf(env.Stdout, "0x%s\n", d.attr.NodeGUID.Compact())
				}
			}
		default:
			printStat(env.Stdout, d, *short)
		}
	}
	return 0
}

func printStat(w io.Writer, d *device, short bool) {
	fmt.Fprintf(w, "CA '%s'\n\tCA type: \n\tNumber of ports: %d\n\tFirmware version: %s\n\tHardware version: %x\n"+
		"\tNode GUID: 0x%s\n\tSystem image GUID: 0x%s\n", d.name, len(d.ports), d.attr.FWVer, d.attr.HWVer,
		d.attr.NodeGUID.Compact(), d.attr.SysImageGUID.Compact())
	if short {
		return
	}
	for i, p := range d.ports {
		if !d.shows(i + 1) {
			continue
		}
		rate, _ := portrate.Of(&p)
		fmt.Fprintf(w, "\tPort %d:\n\t\tState: %s\n\t\tPhysical state: %s\n\t\tRate: %s\n\t\tBase lid: %d\n\t\tLMC: %d\n"+
			"\t\tSM lid: %d\n\t\tCapability mask: 0x%08x\n\t\tPort GUID: 0x%s\n\t\tLink layer: Ethernet\n", i+1,
			stateOf(p.State), physOf(p.PhysState), rate, p.LID, p.LMC, p.SMLID, uint32(p.PortCapFlags),
			d.attr.NodeGUID.Compact())
	}
}

func runStatus(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[DEV[:PORT]]...")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	return show(env, f.Args(), printStatus)
}

// show prints the devices of the given names, all if there are none.
func show(env *tool.Env, names []string, print func(w io.Writer, d *device)) int {
	ds, err := devices(names)
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	for _, d := range ds {
		print(env.Stdout, d)
	}
	return 0
}

func printStatus(w io.Writer, d *device) {
	for i, p := range d.ports {
		if !d.shows(i + 1) {
			continue
		}
		var gid verbs.GID
		for _, g := range d.gids {
			if int(g.Port) == i+1 {
				gid = g.GID
				break
			}
		}
		rate, lanes := portrate.Of(&p)
		fmt.Fprintf(w, "Infiniband device '%s' port %d status:\n\tdefault gid:\t %s\n\tbase lid:\t 0x%x\n\tsm lid:\t\t "+
			"0x%x\n"+
			"\tstate:\t\t %d: %s\n\tphys state:\t %d: %s\n\trate:\t\t %s Gb/sec (%dX %s)\n\tlink_layer:\t Ethernet\n\n",
			d.name, i+1, gid.Hex(), p.LID, p.SMLID, p.State, portrate.State(p.State), p.PhysState,
			physOf(p.PhysState), rate, lanes, portrate.Generation(p.ActiveSpeed))
	}
}

func stateOf(s verbs.PortState) string {
	switch s {
	case verbs.PortActive:
		return "Active"
	case verbs.PortInit:
		return "Initializing"
	case verbs.PortArmed:
		return "Armed"
	}
	return "Down"
}

func physOf(s verbs.PhysState) string {
	switch s {
	case verbs.PhysLinkUp:
		return "LinkUp"
	case verbs.PhysDisabled:
		return "Disabled"
	case verbs.PhysPolling:
		return "Polling"
	}
	return "Sleep"
}

func runGIDs(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[DEV]")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	ds, err := devices(f.Args())
	if err != nil {
		return env.Failf("%s: %v", env.Argv0, err)
	}
	fmt.Fprint(env.Stdout, "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  "+
		"\t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n")
	n := 0
	for _, d := range ds {
		for _, g := range d.gids {
			if !d.shows(int(g.Port)) {
				continue
			}
			ip := "\t"
			if a := g.GID.Addr(); a.Is4() {
				ip = a.String()
			}
			version := map[verbs.GIDType]string{verbs.GIDTypeRoCEv1: "v1"}[g.Type]
			if version == "" {
				version = "v2"
			}
			fmt.Fprintf(env.Stdout, "%s\t%d\t%d\t%s\t%s  \t%s\t%s\n", d.name, g.Port, g.Index, g.GID.Hex(), ip, version,
				g.NetDev)
			n++
		}
	}
	fmt.Fprintf(env.Stdout, "n_gids_found=%d\n", n)
	return 0
}
