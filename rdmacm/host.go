package rdmacm

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// Host is a set of devices, with their addresses, and the port numbers in use there. The default host, that of the
// package's functions, has the devices that verbs.Devices lists at any time; a program that makes its own devices, as
// a test does, makes a host of them. A Host is safe for concurrent use.
//
// Devices are opened when they are first needed and stay open until Close. A device that an ID is or was bound to, or
// has listened on, has QP 1 open and three goroutines; an adapter or an iWARP device has one goroutine. While an ID
// listens on all devices of the default host, one more goroutine looks for new devices every second.
type Host struct {
	list func() ([]*verbs.Device, error)
	grow bool // list returns new devices later

	openKernel func() (kernelChannel, error) // of adapters

	closing sync.Mutex // one Close at a time; before mu

	// These have locks of their own, which come after all others.
	neighbours neighbours
	routeMTUs  routeMTUs

	mu sync.Mutex // its place in the order of locks: manager.go
	// +checklocks:mu
	devices []*device
	// +checklocks:mu
	closed bool
	// +checklocks:mu
	ports portTable
	// Listeners on all devices, present and future.
	// +checklocks:mu
	wild map[*ID]struct{}
	// +checklocks:mu
	paths map[pathKey]localPath
	// When startAll has last started the devices of a port space.
	// +checklocks:mu
	started map[PortSpace]time.Time
	// On mu: a call of device.aside has ended.
	idle *sync.Cond
	// A goroutine looks for new devices.
	// +checklocks:mu
	looking bool
	// nil without adapters.
	// +checklocks:mu
	kernel *kernelCM
	// Ends publish.
	// +checklocks:mu
	unpublish func()
}

// defaultHost is the host of the package's functions.
var defaultHost = func() *Host {
	h := newHost(verbs.Devices)
	h.grow = true
	return h
}()

// newHost makes a host of the devices that list returns.
func newHost(list func() ([]*verbs.Device, error)) *Host {
	h := &Host{list: list, openKernel: openKernel, ports: portTable{}, wild: map[*ID]struct{}{}}
	h.idle = sync.NewCond(&h.mu)
	return h
}

// NewHost makes a host of these devices. It does not open them yet. Close closes it. It has no C twin.
func NewHost(devices ...*verbs.Device) *Host {
	return newHost(func() ([]*verbs.Device, error) { return devices, nil })
}

// DefaultHost is the host of the package's functions. It has no C twin.
func DefaultHost() *Host { return defaultHost }

// Close ends the connection management of the host's devices and closes them. EBUSY while IDs are bound to a device or
// listen: the host is unchanged. EBUSY also while the program has objects on a device: that device stays open, but no
// ID can be bound any more (ErrClosed), as after success; call Close again without the objects. EINVAL for the default
// host, which cannot be closed.
func (h *Host) Close() error {
	const op = "close_host"
	if h == defaultHost {
		return &Error{Op: op, Errno: syscall.EINVAL, Detail: "the default host cannot be closed"}
	}
	h.closing.Lock()
	defer h.closing.Unlock()
	devices, err := h.takeDevices(op)
	if err != nil {
		return err
	}
	var errs []error
	var left []*device
	for _, d := range devices { // without mu: their goroutines may wait for it
		if err := d.close(); err != nil {
			errs, left = append(errs, err), append(left, d)
		}
	}
	h.mu.Lock()
	h.devices = left
	k := h.kernel
	h.kernel = nil
	h.mu.Unlock()
	k.stopKernel()
	return errors.Join(errs...)
}

// takeDevices takes the devices out of the host, for Close. EBUSY while IDs are left.
func (h *Host) takeDevices(op string) ([]*device, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for slices.ContainsFunc(h.devices, func(d *device) bool { return d.busy > 0 }) {
		h.idle.Wait()
	}
	for _, d := range h.devices {
		if n := len(d.users); n > 0 {
			return nil, &Error{Op: op, Errno: syscall.EBUSY, Detail: "IDs are bound to " + d.ctx.Device().Name()}
		}
	}
	if len(h.wild) > 0 {
		return nil, &Error{Op: op, Errno: syscall.EBUSY, Detail: "IDs listen on all devices"}
	}
	devices := h.devices
	h.devices, h.paths, h.started, h.closed = nil, nil, nil, true
	if h.unpublish != nil {
		h.unpublish()
		h.unpublish = nil
	}
	return devices, nil
}

// scan opens new devices, and returns all.
//
// +checklocks:h.mu
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
	return nil, errNoDevice
}

// errNoDevice is the error of a host without devices.
var errNoDevice = &Error{Op: "get_devices", Errno: syscall.ENODEV, Detail: "there is no device",
	Hint: "verbena doctor says why"}

// device finds the opened device of a verbs.Device, nil if there is none.
//
// +checklocks:h.mu
func (h *Host) device(dev *verbs.Device) *device {
	for _, d := range h.devices {
		if driver.Of[verbs.DriverDevice](d.vdev) == driver.Of[verbs.DriverDevice](dev) && !d.gone {
			return d
		}
	}
	return nil
}

// Devices lists the host's devices, opened (rdma_get_devices). They are those of ID.Verbs. The program must not close
// them. ENODEV if there are none, ErrClosed after Close; otherwise the errors of opening them, if none opens.
func (h *Host) Devices() ([]*verbs.Context, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	devices, err := h.scan()
	if errors.Is(err, errNoDevice) {
		return nil, errNoDevice
	}
	if err != nil {
		return nil, &Error{Op: "get_devices", Errno: errnoOf(err), Err: err}
	}
	var list []*verbs.Context
	for _, d := range devices {
		if !d.gone {
			list = append(list, d.ctx)
		}
	}
	if len(list) == 0 {
		return nil, errNoDevice
	}
	return list, nil
}

// startAll starts all devices of a port space, if it has not just done so. Listen reports the errors, and starts those
// that are newer.
//
// +checklocks:h.mu
func (h *Host) startAll(ps PortSpace) {
	now := time.Now()
	if at, ok := h.started[ps]; ok && now.Sub(at) < pathAge {
		return
	}
	devices, err := h.choices(ps)
	if err != nil {
		return
	}
	for _, d := range slices.Clone(devices) { // others may scan while one starts
		if !d.gone {
			_ = d.start()
		}
	}
	if h.started == nil {
		h.started = map[PortSpace]time.Time{}
	}
	h.started[ps] = now
}

// Devices lists the devices of the default host, opened (rdma_get_devices). The program must not close them. ENODEV if
// there are none.
func Devices() ([]*verbs.Context, error) { return defaultHost.Devices() }

// owner finds the device of a port space that has a local address, and starts it.
//
// +checklocks:h.mu
func (h *Host) owner(ps PortSpace, local netip.Addr) (*device, gidPlace, error) {
	devices, err := h.choices(ps)
	if err != nil {
		return nil, noPlace, err
	}
	if d, at := ownerOf(devices, local); d != nil {
		return d, at, d.start()
	}
	return nil, noPlace, &Error{Op: "bind_addr", Errno: syscall.ENODEV,
		Detail: local.String() + ": must be the address of an RDMA device",
		Hint:   "verbena ibv_devinfo -v lists the addresses of the devices, VERBENA_DEVICES chooses these"}
}
