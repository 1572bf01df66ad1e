// Package devinfo has the tools ibv_devices and ibv_devinfo, with the options and columns of the C
// programs. It imports verbs and internal/tools/{nearest,tool}.
package devinfo

import (
	"fmt"
	"io"

	"github.com/verbena-rdma/verbena/internal/tools/nearest"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

// Tools returns the two programs.
func Tools() []tool.Tool {
	return []tool.Tool{
		{Name: "ibv_devices", Short: "list the devices", Run: runDevices},
		{Name: "ibv_devinfo", Short: "print what the devices support", Run: runDevinfo},
	}
}

// notFound is the exit status of ibv_devinfo if the device does not exist; -1 in C.
const notFound = 255

func runDevices(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	devices, err := verbs.Devices()
	if err != nil {
		env.Failf("%v", err)
	}
	printDevices(env.Stdout, devices)
	if err != nil {
		return 1
	}
	return 0
}

func printDevices(w io.Writer, devices []*verbs.Device) {
	fmt.Fprintf(w, "    %-16s\t   node GUID\n", "device")
	fmt.Fprintf(w, "    %-16s\t----------------\n", "------")
	for _, d := range devices {
		fmt.Fprintf(w, "    %-16s\t%s\n", d.Name(), d.GUID().Compact())
	}
}

func runDevinfo(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[options]")
	name := f.StringP("ib-dev", "d", "", "print only this device (default: all)")
	portNum := f.Uint8P("ib-port", "i", 0, "print only this port (default: all)")
	list := f.BoolP("list", "l", false, "print only the names")
	verbose := f.BoolP("verbose", "v", false, "print all attributes")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.Changed("ib-port") && *portNum == 0 {
		return f.Misused("port 0: must be at least 1")
	}
	devices, err := verbs.Devices()
	if err != nil {
		env.Failf("%v", err)
	}
	if *list {
		printNames(env.Stdout, devices)
		return statusOf(err)
	}
	status := statusOf(err)
	found := false
	for _, d := range devices {
		if *name != "" && d.Name() != *name {
			continue
		}
		found = true
		info, err := query(d, *portNum)
		if err != nil {
			status = env.Failf("%v", err)
			continue
		}
		info.print(env.Stdout, *verbose)
	}
	switch {
	case found:
		return status
	case *name != "":
		env.Failf("IB device '%s' wasn't found%s", *name, nearest.Instead(devices))
	default:
		env.Failf("No IB devices found")
	}
	return notFound
}

func statusOf(err error) int {
	if err != nil {
		return notFound
	}
	return 0
}

func printNames(w io.Writer, devices []*verbs.Device) {
	s := "s"
	if len(devices) == 1 {
		s = ""
	}
	fmt.Fprintf(w, "%d HCA%s found:\n", len(devices), s)
	for _, d := range devices {
		fmt.Fprintf(w, "\t%s\n", d.Name())
	}
	fmt.Fprintln(w)
}

// query reads all attributes of a device; only is the port to query, or 0 for all.
func query(d *verbs.Device, only uint8) (*device, error) {
	ctx, err := d.Open()
	if err != nil {
		return nil, err
	}
	defer ctx.Close()
	info := &device{name: d.Name(), transport: d.TransportType(), compVectors: ctx.NumCompVectors()}
	if info.attr, err = ctx.QueryDevice(); err != nil {
		return nil, err
	}
	if only > info.attr.PhysPortCnt {
		return nil, fmt.Errorf("%s: port %d: must be 1 to %d", d.Name(), only, info.attr.PhysPortCnt)
	}
	gids, err := ctx.QueryGIDTable()
	if err != nil {
		return nil, err
	}
	for num := uint8(1); num <= info.attr.PhysPortCnt; num++ {
		if only != 0 && num != only {
			continue
		}
		p := port{num: num}
		if p.attr, err = ctx.QueryPort(num); err != nil {
			return nil, err
		}
		for _, g := range gids {
			if g.Port == num {
				p.gids = append(p.gids, g)
			}
		}
		info.ports = append(info.ports, p)
	}
	return info, nil
}
