package rdmacm

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Host is what IDs live on: a set of devices, with their addresses, and the port numbers in use there. The default
// host, that of the package's functions, has the devices that verbs.Devices lists at any time; a program that makes its own
// devices, as a test does, makes a host of them.
//
// Devices are opened when they are first needed and stay open until Close. A device that an ID is bound to, or that a
// listener is on, has its UDP port taken and three goroutines. While a
// listener is on all devices, one more looks every second whether there are new ones.
type Host struct {
	list func() ([]*verbs.Device, error)
	grow bool // the list may get longer

	closing sync.Mutex // one Close at a time; before mu

	mu      sync.Mutex // guards what follows; after ID.mu
	devices []*device
	closed  bool
	ports   portTable
	wild    map[*ID]struct{} // listeners on all devices, those to come included
	ways    map[netip.Addr]way
	looking bool   // a goroutine looks for devices to come
	silence func() // ends tell
}

var defaultHost = func() *Host {
	h := newHost(verbs.Devices)
	h.grow = true
	return h
}()

func newHost(list func() ([]*verbs.Device, error)) *Host {
	return &Host{list: list, ports: portTable{}, wild: map[*ID]struct{}{}}
}

// NewHost makes a host of these devices. It does not open them yet.
func NewHost(devices ...*verbs.Device) *Host {
	return newHost(func() ([]*verbs.Device, error) { return devices, nil })
}

// DefaultHost is the host of the package's functions.
func DefaultHost() *Host { return defaultHost }

// Close ends the connection management of the host's devices and closes them. EBUSY if IDs are left: nothing has happened. EBUSY also if the
// program still has objects on a device: it stays open, while nothing can be bound to it any more, until Close is called again without
// them. The default host cannot be closed.
func (h *Host) Close() error {
	const op = "close_host"
	if h == defaultHost {
		return &Error{Op: op, Errno: syscall.EINVAL, Detail: "the default host lives as long as the program"}
	}
	h.closing.Lock()
	defer h.closing.Unlock()
	devices, err := h.takeDevices(op)
	if err != nil {
		return err
	}
	var errs []error
	var left []*device
	for _, d := range devices { // without mu, which their goroutines may wait for
		if err := d.close(); err != nil {
			errs, left = append(errs, err), append(left, d)
		}
	}
	h.mu.Lock()
	h.devices = left
	h.mu.Unlock()
	return errors.Join(errs...)
}

// takeDevices ends what leads to the devices, and hands them to whoever closes them. No IDs are left.
func (h *Host) takeDevices(op string) ([]*device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.devices {
		if n := len(d.users); n > 0 {
			return nil, &Error{Op: op, Errno: syscall.EBUSY, Detail: "IDs are bound to " + d.ctx.Device().Name()}
		}
	}
	if len(h.wild) > 0 {
		return nil, &Error{Op: op, Errno: syscall.EBUSY, Detail: "IDs listen on all devices"}
	}
	devices := h.devices
	h.devices, h.ways, h.closed = nil, nil, true
	if h.silence != nil {
		h.silence()
		h.silence = nil
	}
	return devices, nil
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
		if d.vdev.Driver() == dev.Driver() && !d.gone {
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
