package rdmacm

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Host is what IDs live on: a set of devices, with their addresses, and the port numbers in use there. The default
// host, that of the package's functions, has the devices that verbs.Devices lists; a program that makes its own devices, as a
// test does, makes a host of them.
//
// Devices are opened when they are first needed and stay open until Close. A device that an ID is bound to, or that a
// listener is on, has its UDP port taken and two goroutines.
type Host struct {
	list func() ([]*verbs.Device, error)

	mu      sync.Mutex // guards what follows; after ID.mu
	devices []*device
	closed  bool
	ports   portTable
	wild    map[*ID]struct{} // listeners on all devices, those to come included
}

var defaultHost = newHost(verbs.Devices)

func newHost(list func() ([]*verbs.Device, error)) *Host {
	return &Host{list: list, ports: portTable{}, wild: map[*ID]struct{}{}}
}

// NewHost makes a host of these devices. It does not open them yet.
func NewHost(devices ...*verbs.Device) *Host {
	return newHost(func() ([]*verbs.Device, error) { return devices, nil })
}

// DefaultHost is the host of the package's functions.
func DefaultHost() *Host { return defaultHost }

// Close ends the connection management of the host's devices and closes them. EBUSY if IDs are left. A device that
// the program still has objects on stays open. The default host cannot be closed.
func (h *Host) Close() error {
	const op = "close_host"
	if h == defaultHost {
		return &Error{Op: op, Errno: syscall.EINVAL, Detail: "the default host lives as long as the program"}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if n := d.users; n > 0 {
			return &Error{Op: op, Errno: syscall.EBUSY, Detail: "IDs are bound to " + d.ctx.Device().Name()}
		}
	}
	var errs []error
	for _, d := range h.devices {
		errs = append(errs, d.close())
	}
	h.devices, h.closed = nil, true
	return errors.Join(errs...)
}

// scan opens devices that have come, and returns all. h.mu is held.
func (h *Host) scan() ([]*device, error) {
	if h.closed {
		return nil, &Error{Op: "host", Errno: syscall.EINVAL, Err: ErrClosed}
	}
	list, err := h.list()
	errs := []error{err}
	for _, dev := range list {
		if h.device(dev) != nil {
			continue
		}
		d, err := newDevice(h, dev)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		h.devices = append(h.devices, d)
	}
	if len(h.devices) > 0 {
		return h.devices, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return nil, &Error{Op: "get_devices", Errno: syscall.ENODEV, Detail: "there is no RDMA device"}
}

func (h *Host) device(dev *verbs.Device) *device {
	for _, d := range h.devices {
		if d.vdev.Driver() == dev.Driver() {
			return d
		}
	}
	return nil
}

// Devices lists the host's devices, opened (rdma_get_devices). They are those of ID.Verbs, stay open, and need not
// be given back. ENODEV if there are none.
func (h *Host) Devices() ([]*verbs.Context, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	devices, err := h.scan()
	if err != nil {
		return nil, &Error{Op: "get_devices", Errno: errnoOf(err), Err: err}
	}
	var list []*verbs.Context
	for _, d := range devices {
		if !d.gone {
			list = append(list, d.ctx)
		}
	}
	return list, nil
}

// Devices lists the devices of the default host, opened (rdma_get_devices).
func Devices() ([]*verbs.Context, error) { return defaultHost.Devices() }

// owner finds the device that has a local address, and starts it. h.mu is held.
func (h *Host) owner(local netip.Addr) (*device, int, error) {
	devices, err := h.scan()
	if err != nil {
		return nil, 0, err
	}
	for _, d := range devices {
		if i := d.gidIndex(local); i >= 0 && !d.gone {
			return d, i, d.start()
		}
	}
	return nil, 0, &Error{Op: "bind_addr", Errno: syscall.ENODEV, Detail: local.String() + " is not the address of an RDMA device"}
}

// toward finds the device and the local address for traffic to a peer, and starts the device: the one that the system's route
// leaves from, or else the first that can reach the peer. h.mu is held.
func (h *Host) toward(peer netip.Addr) (*device, netip.Addr, error) {
	devices, err := h.scan()
	if err != nil {
		return nil, netip.Addr{}, err
	}
	source, iface, routeErr := route(peer)
	for _, d := range devices {
		if routeErr == nil && !d.gone && d.gidIndex(source) >= 0 {
			return d, source, d.start()
		}
	}
	for _, d := range devices {
		if on := d.vdev.Interface(); d.gone || on != "" && (routeErr != nil || iface != on) {
			continue
		}
		c, err := d.ctx.SelectGID(peer)
		if src := c.GID.Addr(); err == nil && src.IsLoopback() == peer.IsLoopback() {
			return d, src, d.start()
		}
	}
	if routeErr != nil {
		return nil, netip.Addr{}, routeErr
	}
	return nil, netip.Addr{}, &Error{
		Op: "resolve_addr", Errno: syscall.ENODEV, Detail: "no RDMA device has a route to " + peer.String() + ", which leaves from " + source.String(),
	}
}

// route asks the system which address of which interface it would send to peer from.
func route(peer netip.Addr) (source netip.Addr, iface string, err error) {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer, wire.Port)))
	if err != nil {
		return source, "", err
	}
	defer c.Close()
	source = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
	ifs, err := net.Interfaces()
	if err != nil {
		return source, "", err
	}
	for i := range ifs {
		addrs, _ := ifs[i].Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == source {
				return source, ifs[i].Name, nil
			}
		}
	}
	return source, "", nil
}
