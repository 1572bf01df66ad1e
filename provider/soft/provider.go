package soft

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/internal/sysroute"
	"github.com/verbena-rdma/verbena/verbs"
)

// envDevices is the environment variable that selects or defines the devices.
const envDevices = "VERBENA_DEVICES"

func init() { driver.Register(&soft) }

// soft is the provider. It keeps its devices, so that all contexts of a device share one struct.
var soft provider

type provider struct {
	mu sync.Mutex // guards devices
	// +checklocks:mu
	devices map[string]*device // by spec.key
}

// Name returns "soft".
func (p *provider) Name() string { return driver.Soft }

// Devices returns the devices that exist now; none if VERBENA_PROVIDER selects another provider. Programs without
// provider/iwarp have its devices too if the environment asks for them.
func (p *provider) Devices() (list []verbs.DriverDevice, err error) {
	ok, err := driver.Selected(driver.Soft)
	if err != nil {
		return nil, err
	}
	if ok {
		specs, err := listSpecs(os.Getenv(envDevices))
		if keys := setPKeyTables(specs); keys != nil {
			return nil, errors.Join(err, keys)
		}
		if list = p.of(specs); err != nil {
			return list, err
		}
	}
	asked := os.Getenv(driver.EnvTransport) == driver.IWARP || os.Getenv(driver.EnvProvider) == driver.IWARP
	if driver.StreamsListed || !asked {
		return list, nil
	}
	streams, err := p.streams()
	return append(list, streams...), err
}

// of returns the devices of specs.
func (p *provider) of(specs []spec) []verbs.DriverDevice {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.devices == nil {
		p.devices = make(map[string]*device)
	}
	drivers := make([]verbs.DriverDevice, 0, len(specs))
	for _, s := range specs {
		d := p.devices[s.key()]
		if d == nil {
			d = newDevice(s)
			p.devices[s.key()] = d
		}
		drivers = append(drivers, d)
	}
	return drivers
}

// spec defines a device: an interface with its current addresses, or fixed addresses.
type spec struct {
	name   string
	iface  string
	addrs  []netip.Addr // nil means those of iface
	on     []string     // the interface of each of addrs if they belong to several; iface is the first
	onPort []uint8      // the port of each of addrs if there are several, in ascending order

	streams bool // an iWARP device

	pkeys [][]uint16 // the P_Key table of each port; nil: the default one
}

func (s *spec) key() string {
	return fmt.Sprintf("%s %s %v %v %v", s.name, s.iface, s.addrs, s.onPort, s.pkeys)
}

// ports returns the number of ports.
func (s *spec) ports() int {
	if n := len(s.onPort); n > 0 {
		return int(s.onPort[n-1])
	}
	return 1
}

// port returns the spec of one port: that of a device with its addresses only.
func (s *spec) port(num uint8) *spec {
	if s.onPort == nil {
		return s
	}
	p := &spec{name: s.name, streams: s.streams}
	for i, n := range s.onPort {
		if n != num {
			continue
		}
		on := s.iface
		if s.on != nil {
			on = s.on[i]
		}
		if p.addrs == nil {
			p.iface = on
		}
		p.addrs, p.on = append(p.addrs, s.addrs[i]), append(p.on, on)
	}
	if len(p.interfaces()) < 2 {
		p.on = nil
	}
	return p
}

// listSpecs parses the value of VERBENA_DEVICES. A wrong entry does not affect the others.
func listSpecs(value string) (specs []spec, err error) {
	if err := checkSwitches(); err != nil {
		return nil, err
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, verbsError("listing the network interfaces", err)
	}
	if strings.TrimSpace(value) == "" {
		return defaultSpecs(ifs), nil
	}
	var errs []error
	for entry := range strings.SplitSeq(value, ",") {
		s, err := parseEntry(strings.TrimSpace(entry), ifs)
		if err == nil && slices.ContainsFunc(specs, func(o spec) bool { return o.name == s.name }) {
			err = fmt.Errorf("two devices have the name %s", s.name)
		}
		if err != nil {
			errs = append(errs, &badDevices{value, entry, err})
			continue
		}
		specs = append(specs, s)
	}
	return specs, errors.Join(errs...)
}

// defaultSpecs returns a device of each interface that is up and has an address.
func defaultSpecs(ifs []net.Interface) (specs []spec) {
	var loopbacks []spec
	for i := range ifs {
		ifi := &ifs[i]
		if ifi.Flags&net.FlagUp == 0 || len(addrsOf(ifi)) == 0 {
			continue
		}
		s := spec{name: devicePrefix + ifi.Name, iface: ifi.Name}
		if ifi.Flags&net.FlagLoopback != 0 {
			loopbacks = append(loopbacks, s)
		} else {
			specs = append(specs, s)
		}
	}
	return append(specs, loopbacks...)
}

// devicePrefix precedes the interface in the name of its device.
const devicePrefix = "vrb_"

// parseEntry parses one entry of VERBENA_DEVICES.
func parseEntry(entry string, ifs []net.Interface) (spec, error) {
	name, list, defined := strings.Cut(entry, "=")
	if defined {
		return parseDefinition(name, list, ifs)
	}
	for _, n := range []string{entry, strings.TrimPrefix(entry, devicePrefix)} {
		for i := range ifs {
			if ifs[i].Name != n {
				continue
			}
			if len(addrsOf(&ifs[i])) == 0 {
				return spec{}, fmt.Errorf("interface %s: no address", n)
			}
			return spec{name: devicePrefix + n, iface: n}, nil
		}
	}
	var names []string
	for i := range ifs {
		names = append(names, ifs[i].Name)
	}
	return spec{}, fmt.Errorf("unknown network interface %q; the interfaces are %s", entry, strings.Join(names, ", "))
}

// maxPorts is the maximum number of ports of a device.
const maxPorts = 16

// parseDefinition parses NAME=ADDR[+ADDR...][/ADDR[+ADDR...]...].
func parseDefinition(name, list string, ifs []net.Interface) (spec, error) {
	s := spec{name: name}
	if !goodName(name) {
		return s, fmt.Errorf("device name %q: must be 1 to 63 letters, digits, '_', '-' or '.'", name)
	}
	parts := strings.Split(list, "/")
	if len(parts) > maxPorts {
		return s, fmt.Errorf("%d ports: must be 1 to %d", len(parts), maxPorts)
	}
	for i, part := range parts {
		if err := s.parsePort(part, ifs); err != nil {
			return s, err
		}
		for len(parts) > 1 && len(s.onPort) < len(s.addrs) {
			s.onPort = append(s.onPort, uint8(i+1))
		}
	}
	s.iface = s.on[0]
	if len(s.interfaces()) == 1 {
		s.on = nil
	}
	return s, nil
}

// parsePort parses ADDR[+ADDR...], the addresses of a port.
func (s *spec) parsePort(list string, ifs []net.Interface) error {
	for text := range strings.SplitSeq(list, "+") {
		a, err := netip.ParseAddr(text)
		zone := sysroute.Named(a).Zone()
		a = a.Unmap().WithZone("")
		switch {
		case err != nil:
			return fmt.Errorf("address %q: must be an IP address ('/' separates the ports of a device)", text)
		case a.IsMulticast() || a.IsUnspecified():
			return fmt.Errorf("address %v: must be a unicast address", a)
		case slices.Contains(s.addrs, a):
			return fmt.Errorf("address %v: must be given once", a)
		}
		i := slices.IndexFunc(ifs, func(ifi net.Interface) bool {
			return hasAddr(&ifi, a) && (zone == "" || zone == ifi.Name)
		})
		if i < 0 && zone != "" {
			return fmt.Errorf("the network interface %s does not have the address %v", zone, a)
		}
		if i < 0 {
			return fmt.Errorf("no network interface has the address %v", a)
		}
		s.addrs, s.on = append(s.addrs, a), append(s.on, ifs[i].Name)
	}
	return nil
}

// interfaces returns the names of the device's interfaces. The list is empty if the device was made with addresses
// that belong to no interface.
func (s *spec) interfaces() (list []string) {
	for _, name := range append([]string{s.iface}, s.on...) {
		if name != "" && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// netdev returns the interface of one of the device's addresses.
func (s *spec) netdev(a netip.Addr, iface string) string {
	if i := slices.Index(s.addrs, a); i >= 0 && s.on != nil {
		return s.on[i]
	}
	return iface
}

// goodName reports whether a name complies with the kernel's rules for device names (IB_DEVICE_NAME_MAX) and with
// file names.
func goodName(name string) bool {
	if len(name) < 1 || len(name) > 63 {
		return false
	}
	for _, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-' && r != '.' {
			return false
		}
	}
	return name != "." && name != ".."
}
