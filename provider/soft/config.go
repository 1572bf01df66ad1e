package soft

import (
	"net"
	"net/netip"
	"runtime"
	"slices"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/softlink"
	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// Config describes a device that a program makes with New, for tests and simulations. It has no C twin.
type Config struct {
	// Name is the device's name, vrb0 if empty.
	Name string
	// Addrs are the local addresses, at least one. The zone of a link-local address is its interface; without a zone it
	// is the first interface that has the address.
	Addrs []netip.Addr
	// MorePorts holds the local addresses of the ports 2, 3 and so on, at least one each, up to 15 ports. Addrs are those
	// of port 1.
	MorePorts [][]netip.Addr
	// Shards is the number of shards, each of which runs a part of the device's QPs: 0 to 64. 0 means GOMAXPROCS,
	// but at most 16, and at most 4 with UDP sockets, since each shard takes descriptors. The device may have
	// fewer shards if many processes use the address.
	Shards int
	// PKeys is the P_Key table of each port, in host byte order, as for SetPKeys: up to 128 entries, of which a 0 is
	// empty. No entry means 0xFFFF, full membership of the default partition, alone.
	PKeys []uint16
	// Clock returns the time in nanoseconds and must be monotonic. nil means the system's monotonic clock.
	Clock func() int64
	// Manual: the device has no goroutines. All work is done in the program's calls and in Device.Step.
	Manual bool
	// FirstQPN is the first QP number to be assigned; memory keys then count from 0x101. It makes runs
	// reproducible. 0 means unpredictable numbers and keys.
	FirstQPN uint32

	links softlink.Links // links in place of sockets, set by packages of this module
}

func init() { softlink.Set = func(config any, l softlink.Links) { config.(*Config).links = l } }

const (
	defaultName   = "vrb0"
	defaultShards = 16 // at most
	udpShards     = 4  // at most, with UDP sockets
)

// Device is a device made by New. It is safe for concurrent use.
type Device struct {
	*verbs.Device
	dev *device
}

// New makes a device, which verbs.Devices does not list. It takes no sockets before its first QP. EINVAL for a wrong
// name, number of shards or address, no address, or P_Keys that SetPKeys would refuse; ENODEV for a zone that is no
// interface. It has no C twin.
func New(c Config) (*Device, error) {
	if c.Name == "" {
		c.Name = defaultName
	}
	if !goodName(c.Name) {
		return nil, fail(verbs.EINVAL, "device name %q: must be 1 to 63 letters, digits, '_', '-' or '.'", c.Name)
	}
	if c.Shards < 0 || c.Shards > engine.MaxShards {
		return nil, fail(verbs.EINVAL, "%d shards: must be 0 to %d", c.Shards, engine.MaxShards)
	}
	s := spec{name: c.Name}
	if err := s.setAddrs(append([][]netip.Addr{c.Addrs}, c.MorePorts...)); err != nil {
		return nil, err
	}
	if c.links.Open != nil {
		s.on = nil
	} else if err := s.setZones(); err != nil {
		return nil, err
	}
	if len(c.PKeys) > 0 {
		if err := checkPKeys(c.PKeys, maxPKeys); err != nil {
			return nil, fail(verbs.EINVAL, "%v", err)
		}
		for range s.ports() {
			s.pkeys = append(s.pkeys, c.PKeys)
		}
	}
	d := newDevice(s)
	d.cfg = c
	d.virtual = c.links.Open != nil
	return &Device{Device: driver.NewDevice(d), dev: d}, nil
}

// setAddrs sets the addresses of each port.
func (s *spec) setAddrs(ports [][]netip.Addr) error {
	if len(ports) > maxPorts {
		return fail(verbs.EINVAL, "%d ports: must be 1 to %d", len(ports), maxPorts)
	}
	for i, list := range ports {
		if len(list) == 0 {
			return fail(verbs.EINVAL, "no address: port %d must have at least one (Addrs, MorePorts)", i+1)
		}
		for _, a := range list {
			s.on = append(s.on, sysroute.Named(a).Zone())
			a = a.Unmap().WithZone("")
			if !a.IsValid() || a.IsMulticast() || a.IsUnspecified() {
				return fail(verbs.EINVAL, "address %v: must be a unicast address", a)
			}
			if len(ports) > 1 {
				if slices.Contains(s.addrs, a) {
					return fail(verbs.EINVAL, "address %v: must be given once", a)
				}
				s.onPort = append(s.onPort, uint8(i+1))
			}
			s.addrs = append(s.addrs, a)
		}
	}
	return nil
}

// setZones makes the zones of link-local addresses the interfaces of the addresses.
func (s *spec) setZones() error {
	names := s.interfaces()
	for _, zone := range names {
		if _, err := net.InterfaceByName(zone); err != nil {
			return fail(verbs.ENODEV, "address with zone %s: no network interface has that name", zone)
		}
	}
	if len(names) > 0 {
		s.iface = names[0]
	}
	if len(names) < 2 {
		s.on = nil
	}
	return nil
}

// Step runs a Manual device once and reports whether there is more work to do at once.
func (d *Device) Step() (busy bool) {
	if e := d.dev.running(); e != nil {
		d.dev.frames.Step()
		return e.Step()
	}
	return false
}

// NextDeadline returns the time of Config.Clock in nanoseconds at which a Manual device needs a Step for a timer;
// math.MaxInt64 if no timer is armed.
func (d *Device) NextDeadline() int64 {
	if e := d.dev.running(); e != nil {
		return min(e.NextDeadline(), d.dev.frames.NextDeadline())
	}
	return engine.Never
}

// shards returns the number of shards of the device's engine.
func (c *Config) shards() int {
	if c.Shards > 0 {
		return c.Shards
	}
	most := defaultShards
	if c.links.Open == nil {
		most = udpShards
	}
	return min(runtime.GOMAXPROCS(0), most)
}
