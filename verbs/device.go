package verbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

var providers struct {
	mu   sync.Mutex
	list []Provider
}

// Register makes a provider known. A provider's package calls it from init. A second provider of the same name is a
// mistake of the program and panics.
func Register(p Provider) {
	providers.mu.Lock()
	defer providers.mu.Unlock()
	for _, q := range providers.list {
		if q.Name() == p.Name() {
			panic("verbs: Register called twice for provider " + p.Name())
		}
	}
	providers.list = append(providers.list, p)
}

// Device is an RDMA device that may be opened (struct ibv_device). It stays valid; there is nothing to free.
type Device struct {
	drv  DeviceDriver
	info DeviceInfo
}

// NewDevice makes a device of a driver that no provider lists. It is for providers that let programs make devices.
func NewDevice(drv DeviceDriver) *Device { return &Device{drv: drv, info: drv.Info()} }

// Devices lists the devices of all providers, in their order (ibv_get_device_list); nobody has to free the list
// (ibv_free_device_list). Without devices it is empty and the error nil. A program without any provider gets ENOSYS. If a provider fails, its error is returned
// along with the devices of the others.
//
// Environment variables: with IBV_SHOW_WARNINGS, whatever its value, a line on the standard error output names each device
// of the kernel that no provider has. For RDMAV_FORK_SAFE see ForkInit.
func Devices() ([]*Device, error) {
	forkByEnvironment(os.Stderr)
	providers.mu.Lock()
	list := append([]Provider(nil), providers.list...)
	providers.mu.Unlock()
	devices := []*Device{}
	if len(list) == 0 {
		return devices, newError("get_device_list", "", ENOSYS, "no provider is linked into this program; "+
			`import one: _ "github.com/verbena-rdma/verbena/provider/soft"`)
	}
	var errs []error
	for _, p := range list {
		drivers, err := p.Devices()
		if err != nil {
			errs = append(errs, driverError("get_device_list", "provider "+p.Name(), err))
		}
		for _, drv := range drivers {
			d := &Device{drv: drv, info: drv.Info()}
			if slices.ContainsFunc(devices, func(other *Device) bool { return other.Name() == d.Name() }) {
				errs = append(errs, newError("get_device_list", "provider "+p.Name(), syscall.EEXIST,
					"two devices are called %s; the second one is left out", d.Name()))
				continue
			}
			devices = append(devices, d)
		}
	}
	warnUndriven(os.Stderr, devices)
	return devices, errors.Join(errs...)
}

// Open opens the device of that name (ibv_get_device_list and ibv_open_device). The empty name stands for the first
// device that has an active port, or else the first one that opens. The error for an unknown name lists the names
// there are.
func Open(name string) (*Context, error) {
	devices, listErr := Devices()
	if name == "" {
		return openFirst(devices, listErr)
	}
	names := make([]string, 0, len(devices))
	for _, d := range devices {
		if d.Name() == name {
			return d.Open()
		}
		names = append(names, d.Name())
	}
	have := "there are none"
	if len(names) > 0 {
		have = "there are " + strings.Join(names, ", ")
	}
	return nil, &Error{Op: "open_device", Errno: ENODEV, Detail: fmt.Sprintf("no device is called %q; %s", name, have), Err: listErr}
}

func openFirst(devices []*Device, listErr error) (*Context, error) {
	var idle *Context
	errs := []error{listErr}
	for _, d := range devices {
		ctx, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if attr, err := ctx.QueryPort(1); err == nil && attr.State == PortActive {
			if idle != nil {
				_ = idle.Close()
			}
			return ctx, nil
		}
		if idle != nil {
			_ = ctx.Close()
			continue
		}
		idle = ctx
	}
	if idle != nil {
		return idle, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, driverError("open_device", "", err)
	}
	return nil, newError("open_device", "", ENODEV, "there is no device")
}

// Name is the device's name, unique on this machine: "vrb_eth0" (ibv_get_device_name).
func (d *Device) Name() string { return d.info.Name }

// GUID is the device's GUID (ibv_get_device_guid).
func (d *Device) GUID() GUID { return d.info.GUID }

// NodeType is the kind of device (node_type of struct ibv_device).
func (d *Device) NodeType() NodeType { return d.info.NodeType }

// TransportType is the device's transport (transport_type of struct ibv_device).
func (d *Device) TransportType() TransportType { return d.info.Transport }

// Interface is the network interface that the device works over; empty if there is none.
func (d *Device) Interface() string { return d.info.Interface }

// Driver gives providers and packages above verbs the driver object of the device: two Devices with the same one are one device.
func (d *Device) Driver() DeviceDriver { return d.drv }

// String is the name.
func (d *Device) String() string { return d.info.Name }
