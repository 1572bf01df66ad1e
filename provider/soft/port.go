package soft

import (
	"net"
	"net/netip"
	"slices"

	"github.com/verbena-rdma/verbena/verbs"
)

// portInfo is what a device knows of its port. It is replaced, never changed.
type portInfo struct {
	name    string // of the device
	spec    *spec
	iface   string
	virtual bool // no network interface of this machine: a link in memory
	addrs   []netip.Addr
	table   gidTable
	gone    bool // the interface does not exist
	up      bool
	mtu     int // of the interface
	speed   int // Mb/s; 0 unknown
}

// rocev2Headers is what IP, UDP and RoCEv2 headers may take of an interface's MTU (RXE_MAX_HDR_LENGTH).
const rocev2Headers = 80

// has tells whether a is one of the device's addresses.
func (p *portInfo) has(a netip.Addr) bool { return slices.Contains(p.addrs, a) }

// facts is what the system says of a network interface.
type facts struct {
	iface string
	gone  bool // the interface that the device is named after does not exist
	up    bool
	mtu   int
	speed int // Mb/s; 0 unknown
	addrs []netip.Addr
}

// virtualMTU is the MTU of a port without a network interface, and ipHeaders what its packets have of that before the BTH.
const (
	virtualMTU = 9000
	ipHeaders  = 40 + 8
)

// systemFacts asks the system. An interface that does not exist is down and has no address. A device on several interfaces is up
// while one of them is, and takes no packet that one of them could not carry.
func (d *device) systemFacts() facts {
	f := d.factsOf(d.netInterface())
	for _, name := range d.spec.interfaces() {
		if name == d.spec.iface {
			continue
		}
		if o := d.factsOf(net.InterfaceByName(name)); !o.gone {
			if f.gone {
				f.gone, f.mtu, f.speed = false, o.mtu, o.speed
			}
			f.up, f.mtu = f.up || o.up, min(f.mtu, o.mtu)
		}
	}
	return f
}

// factsOf is what the system says of one interface.
func (d *device) factsOf(ifi *net.Interface, err error) facts {
	if err != nil {
		return facts{iface: d.spec.iface, gone: d.spec.iface != ""}
	}
	up := ifi.Flags&net.FlagUp != 0 && ifi.Flags&net.FlagRunning != 0
	return facts{iface: ifi.Name, up: up, mtu: ifi.MTU, speed: linkSpeed(ifi.Name), addrs: addrsOf(ifi)}
}

// look reads the state of the device's port. old is what was known before, nil at first; GIDs keep their places.
func (d *device) look(old *portInfo) *portInfo {
	f := facts{up: true, mtu: virtualMTU}
	if d.cfg.MTU > 0 {
		f.mtu = d.cfg.MTU + ipHeaders
	}
	if !d.virtual {
		f = d.facts()
	}
	p := &portInfo{
		name: d.spec.name, spec: &d.spec, iface: f.iface, virtual: d.virtual, addrs: f.addrs, gone: f.gone, up: f.up, mtu: f.mtu, speed: f.speed,
	}
	if d.spec.addrs != nil {
		p.addrs = d.spec.addrs
	}
	p.table.def = defaultGID(d.guid)
	if old != nil {
		p.table.gids = slices.Clone(old.table.gids)
	}
	p.table.update(p.addrs)
	return p
}

// netInterface finds the network interface of the device.
func (d *device) netInterface() (*net.Interface, error) {
	if d.spec.iface != "" {
		return net.InterfaceByName(d.spec.iface)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for i := range ifs {
		if carries(&ifs[i], d.spec.addrs[0]) {
			return &ifs[i], nil
		}
	}
	return nil, fail(verbs.ENODEV, "no network interface has the address %v", d.spec.addrs[0])
}

// activeMTU is the largest path MTU whose packets the interface carries.
func (p *portInfo) activeMTU() verbs.MTU {
	m := verbs.MTU4096
	for m > verbs.MTU256 && m.Bytes()+rocev2Headers > p.mtu {
		m--
	}
	return m
}

// attr describes the port.
func (p *portInfo) attr() verbs.PortAttr {
	a := verbs.PortAttr{
		State:        verbs.PortDown,
		PhysState:    verbs.PhysDisabled,
		MaxMTU:       verbs.MTU4096,
		ActiveMTU:    p.activeMTU(),
		GIDTblLen:    gidTableLen,
		PKeyTblLen:   1,
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

// widthAndSpeed expresses an Ethernet speed in Mb/s as the kernel does (ib_get_eth_speed).
func widthAndSpeed(mbps int) (verbs.LinkWidth, verbs.LinkSpeed) {
	switch {
	case mbps <= 1000: // also unknown
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
