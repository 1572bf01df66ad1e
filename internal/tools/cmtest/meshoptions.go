package cmtest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/tools/tool"
)

type meshOptions struct {
	control, iface string
	listen         bool
	peers, threads int
	mimic, baseQPN int
}

// meshLong has the long names of the options of the controller's mode.
var meshLong = map[string]string{
	"B": "interface", "L": "listen", "P": "peers", "n": "threads", "m": "mimic", "q": "base-qpn",
}

// define adds the options of the controller's mode.
func (o *meshOptions) define(f *tool.Flags) {
	f.StringVarP(&o.control, "controller", "C", "", "address of the controller, the same for all instances; with -b or -B")
	f.StringVarP(&o.iface, "interface", "B", "", "bind to the address of this interface; with -C")
	f.BoolVarP(&o.listen, "listen", "L", false, "run as a listening server; with -C")
	f.IntVarP(&o.peers, "peers", "P", 2, "number of instances, servers and clients together; with -C")
	f.IntVarP(&o.threads, "threads", "n", 1, "create and modify this many QPs at once; with -C")
	f.IntVarP(&o.mimic, "mimic", "m", -1, "wait for this many us instead of creating and modifying QPs; with -C")
	f.IntVarP(&o.baseQPN, "base-qpn", "q", 1000, "first QP number of connections without QPs; with -C")
}

// check rejects invalid combinations. given lists the options of the mode that were given.
func (c *cmtime) checkMesh(o *meshOptions, given []string) error {
	switch {
	case o.control == "" && len(given) > 0:
		return fmt.Errorf("-%s needs -C", given[0])
	case o.control == "":
		return nil
	case c.server != "":
		return errors.New("-s cannot be combined with -C: clients learn of the servers from the controller")
	case (c.bind == "") == (o.iface == ""):
		return errors.New("-C needs -b or -B, not both")
	case o.peers < 2 || o.peers > 1000:
		return fmt.Errorf("peers %d: must be 2 to 1000", o.peers)
	case o.threads < 1 || o.threads > 1000:
		return fmt.Errorf("threads %d: must be 1 to 1000", o.threads)
	case o.baseQPN < 2 || o.baseQPN > 0xffffff:
		return fmt.Errorf("base QP number %d: must be 2 to %d", o.baseQPN, 0xffffff)
	}
	return nil
}

// addressOf returns the first address of an interface, an IPv4 one if there is one.
func addressOf(iface string) (string, error) {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return "", fmt.Errorf("interface %s: %w", iface, err)
	}
	list, err := i.Addrs()
	found := ""
	for _, a := range list {
		p, e := netip.ParsePrefix(a.String())
		switch {
		case e != nil:
		case p.Addr().Is4():
			return p.Addr().String(), nil
		case found == "" && !p.Addr().IsLinkLocalUnicast():
			found = p.Addr().String()
		}
	}
	if err != nil || found == "" {
		return "", errors.Join(fmt.Errorf("interface %s has no address", iface), err)
	}
	return found, nil
}
