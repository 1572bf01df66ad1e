package ibstat

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/verbena-rdma/verbena/internal/tools/portrate"
	"github.com/verbena-rdma/verbena/internal/tools/tool"
	"github.com/verbena-rdma/verbena/verbs"
)

func runNetDev(env *tool.Env, args []string) int {
	f := tool.NewFlags(env, "[-v]")
	verbose := f.BoolP("verbose", "v", false,
		"also PCI address, type, part number (NA: none, or not known), firmware and state of the port")
	if status, ok := f.Parse(args); !ok {
		return status
	}
	if f.NArg() > 0 {
		return f.Misused("unexpected argument " + strconv.Quote(f.Arg(0)))
	}
	return show(env, nil, func(w io.Writer, d *device) { printNetDev(w, d, *verbose) })
}

func printNetDev(w io.Writer, d *device, verbose bool) {
	lead := d.name
	if verbose {
		pci, kind := d.hardware("/sys/class/infiniband")
		// The part number and the description after it are in an adapter's PCI configuration, which is not read.
		lead = fmt.Sprintf("%s %s (%s - NA)  fw %s", pci, d.name, kind, d.attr.FWVer)
	}
	for i, p := range d.ports {
		state, up := "", "Down"
		if verbose {
			state = fmt.Sprintf(" (%-6s)", portrate.State(p.State))
		}
		if p.State == verbs.PortActive {
			up = "Up"
		}
		fmt.Fprintf(w, "%s port %d%s ==> %s (%s)\n", lead, i+1, state, d.interfaceOf(i+1), up)
	}
}

// hardware returns the PCI address and the type of an adapter, from the kernel's folder of RDMA devices. A software
// device has no PCI address.
func (d *device) hardware(folder string) (pci, kind string) {
	const unknown = "NA"
	if !d.adapter {
		return unknown, "verbena"
	}
	dir := filepath.Join(folder, d.name)
	if to, err := os.Readlink(filepath.Join(dir, "device")); err == nil {
		pci = filepath.Base(to)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "hca_type"))
	return cmp.Or(pci, unknown), cmp.Or(strings.TrimSpace(string(text)), unknown)
}

// interfaceOf returns the network interface of a port, "-" if it has none.
func (d *device) interfaceOf(port int) string {
	return cmp.Or(portrate.Interface(d.gids, port), d.netdev, "-")
}
