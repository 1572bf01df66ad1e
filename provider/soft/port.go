package soft

import (
	"net"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// portInfo is the state of a port. It is replaced, never changed.
type portInfo struct {
	name    string // of the device
	num     uint8
	spec    *spec // with the addresses of the port
	iface   string
	virtual bool // no network interface of this machine: a link in memory
	addrs   []netip.Addr
	table   gidTable
	entries []verbs.GIDEntry // of table
	gone    bool             // the interface does not exist
	ifindex int              // of the interface that exists, or that existed last; 0: none
	up      bool
	mtu     int // of the interface
	speed   int // Mb/s; 0 means unknown
}

// has reports whether a is one of the device's addresses.
func (p *portInfo) has(a netip.Addr) bool { return slices.Contains(p.addrs, a) }

// ifaceState is the state of a network interface.
type ifaceState struct {
	iface   string
	gone    bool // the interface that the device is named after does not exist
	ifindex int  // of the interface
	up      bool
	mtu     int
	speed   int // Mb/s; 0 means unknown
	addrs   []netip.Addr
}

// virtualMTU is the MTU of a port without a network interface, ipHeaders the part of it before the BTH, bytes.
const (
	virtualMTU = 9000
	ipHeaders  = 40 + 8
)

// systemState returns the state of a port's interfaces. An interface that does not exist is down and has no
// address. A port on several interfaces is up while one of them is, and has the smallest MTU of them.
func (s *spec) systemState() ifaceState {
	f := s.stateOf(s.netInterface())
	for _, name := range s.interfaces() {
		if name == s.iface {
			continue
		}
		f = f.with(s.stateOf(net.InterfaceByName(name)))
	}
	return f
}

// with returns the state of a port that is on a further interface too.
func (f ifaceState) with(o ifaceState) ifaceState {
	if o.gone {
		return f
	}
	if f.gone {
		f.gone, f.mtu, f.speed = false, o.mtu, o.speed
	}
	f.up, f.mtu = f.up || o.up, min(f.mtu, o.mtu)
	return f
}

// stateOf returns the state of one interface.
func (s *spec) stateOf(ifi *net.Interface, err error) ifaceState {
	if err != nil {
		return ifaceState{iface: s.iface, gone: s.iface != ""}
	}
	up := ifi.Flags&net.FlagUp != 0 && ifi.Flags&net.FlagRunning != 0
	return ifaceState{iface: ifi.Name, ifindex: ifi.Index, up: up, mtu: ifi.MTU, speed: linkSpeed(ifi.Name),
		addrs: addrsOf(ifi)}
}

// look returns the state of a port. old is the previous state, nil at first; GIDs keep their indices.
func (d *device) look(num uint8, old *portInfo) *portInfo {
	s := d.spec.port(num)
	f := ifaceState{up: true, mtu: virtualMTU}
	if d.cfg.links.MTU > 0 {
		f.mtu = d.cfg.links.MTU + ipHeaders
	}
	if !d.virtual {
		f = d.ifaceState(s)
	}
	p := &portInfo{
		name: s.name, num: num, spec: s, iface: f.iface, virtual: d.virtual, addrs: f.addrs, gone: f.gone, up: f.up,
		ifindex: f.ifindex, mtu: f.mtu, speed: f.speed,
	}
	if p.ifindex == 0 && old != nil {
		p.ifindex = old.ifindex
	}
	if s.addrs != nil {
		p.addrs = s.addrs
	}
	p.table.def = defaultGID(d.guid)
	p.table.def[15] += num - 1
	if old != nil {
		p.table.gids = slices.Clone(old.table.gids)
	}
	p.table.update(p.addrs)
	p.entries = p.gidEntries()
	return p
}

// netInterface returns the network interface of the port.
func (s *spec) netInterface() (*net.Interface, error) {
	if s.iface != "" {
		return net.InterfaceByName(s.iface)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range ifs {
		if hasAddr(&ifs[i], s.addrs[0]) {
			return &ifs[i], nil
		}
	}
	return nil, fail(verbs.ENODEV, "no network interface has the address %v", s.addrs[0])
}

// activeMTU returns the largest path MTU whose packets fit the interface's MTU.
func (p *portInfo) activeMTU() verbs.MTU {
	return verbs.MTUOf(wire.FittingMTU(verbs.MTU4096.Bytes(), p.mtu))
}

// attr returns the port's attributes.
func (p *portInfo) attr() verbs.PortAttr {
	a := verbs.PortAttr{
		State:        verbs.PortDown,
		PhysState:    verbs.PhysDisabled,
		MaxMTU:       verbs.MTU4096,
		ActiveMTU:    p.activeMTU(),
		GIDTblLen:    gidTableLen,
		PortCapFlags: verbs.PortCMSup | verbs.PortIPBasedGIDs,
		MaxMsgSz:     maxMessage,
		MaxVLNum:     1,
		LinkLayer:    verbs.LinkLayerEthernet,
		Flags:        verbs.QPFGRHRequired,
	}
	if p.up {
		a.State, a.PhysState = verbs.PortActive, verbs.PhysLinkUp
	}
	a.ActiveWidth, a.ActiveSpeed = widthAndSpeed(p.speed)
	return a
}

// widthAndSpeed converts an Ethernet speed in Mb/s as the kernel does (ib_get_eth_speed).
func widthAndSpeed(mbps int) (verbs.LinkWidth, verbs.LinkSpeed) {
	switch {
	case mbps <= 1000: // and 0, unknown
		return verbs.LinkWidth1X, verbs.LinkSpeedSDR
	case mbps <= 10000:
		return verbs.LinkWidth1X, verbs.LinkSpeedFDR10
	case mbps <= 20000:
		return verbs.LinkWidth4X, verbs.LinkSpeedDDR
	case mbps <= 25000:
		return verbs.LinkWidth1X, verbs.LinkSpeedEDR
	case mbps <= 40000:
		return verbs.LinkWidth4X, verbs.LinkSpeedFDR10
	case mbps <= 50000:
		return verbs.LinkWidth2X, verbs.LinkSpeedEDR
	case mbps <= 100000:
		return verbs.LinkWidth4X, verbs.LinkSpeedEDR
	default:
		return verbs.LinkWidth4X, verbs.LinkSpeedHDR
	}
}

// addrsOf returns the unicast addresses of an interface: IPv4, then IPv6, link-local ones last.
func addrsOf(ifi *net.Interface) []netip.Addr {
	list, err := ifi.Addrs()
	if err != nil {
		return nil
	}
	return unicast(list)
}

// unicast returns the unicast addresses of a list in the order of addrsOf, each once.
func unicast(list []net.Addr) (addrs []netip.Addr) {
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := p.Addr().Unmap().WithZone("")
		if !addr.IsMulticast() && !addr.IsUnspecified() && !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return addrRank(a) - addrRank(b) })
	return addrs
}

// addrRank returns the place of an address in the order of addrsOf.
func addrRank(a netip.Addr) int {
	switch {
	case a.Is4():
		return 0
	case !a.IsLinkLocalUnicast():
		return 1
	default:
		return 2
	}
}

// hasAddr reports whether an interface has the address; a loopback interface has all addresses of its networks.
func hasAddr(ifi *net.Interface, addr netip.Addr) bool { return inSubnet(ifi, addr, true) }

// inSubnet reports whether the address is in a network of the interface. exact: the address must be the interface's
// own.
func inSubnet(ifi *net.Interface, addr netip.Addr, exact bool) bool {
	list, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range list {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		own := p.Addr().Unmap().WithZone("") == addr
		if own || (!exact || ifi.Flags&net.FlagLoopback != 0) && p.Masked().Contains(addr) {
			return true
		}
	}
	return false
}

// has reports whether an address is one of the device's.
func (d *device) has(a netip.Addr) bool {
	for i := range d.ports {
		if d.ports[i].Load().has(a) {
			return true
		}
	}
	return false
}

// activeMTU returns the smallest active MTU of the ports.
func (d *device) activeMTU() verbs.MTU {
	m := d.at(1).activeMTU()
	for i := range d.ports {
		m = min(m, d.ports[i].Load().activeMTU())
	}
	return m
}
