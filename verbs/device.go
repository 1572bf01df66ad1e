package verbs

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/verbena-rdma/verbena/observe"
)

var providers struct {
	mu sync.Mutex
	// +checklocks:mu
	list []DriverProvider
}

// register adds a provider; see driver.Register.
func register(p DriverProvider) {
	providers.mu.Lock()
	defer providers.mu.Unlock()
	for _, q := range providers.list {
		if q.Name() == p.Name() {
			panic("verbs: driver.Register called twice for provider " + p.Name())
		}
	}
	providers.list = append(providers.list, p)
}

// Device is an RDMA device that may be opened (struct ibv_device). It stays valid; there is nothing to free. It is
// safe for concurrent use.
type Device struct {
	drv      DriverDevice
	info     DriverInfo
	provider string
}

// newDevice returns a device for a driver that no provider lists.
func newDevice(drv DriverDevice) *Device { return &Device{drv: drv, info: drv.Info()} }

// absent returns the reasons of the providers that have no devices; nil if all have some.
func absent() error {
	providers.mu.Lock()
	list := slices.Clone(providers.list)
	providers.mu.Unlock()
	var errs []error
	for _, p := range list {
		if _, err := p.Devices(); errors.Is(err, ENODEV) {
			errs = append(errs, driverError("get_device_list", "provider "+p.Name(), err))
		}
	}
	return errors.Join(errs...)
}

// Devices lists the devices of all providers, in their order (ibv_get_device_list). There is nothing to free
// (ibv_free_device_list). Without devices the list is empty and the error nil.
//
// Errors: ENOSYS if no provider is linked into the program. If a provider fails, its error is returned along with the
// devices of the others; ENODEV, by which a provider says why it has none, is returned only if no provider has devices.
//
// Environment: if IBV_SHOW_WARNINGS is set, even to the empty string, a line on standard error names each device of
// the kernel without a provider. For RDMAV_FORK_SAFE see ForkInit.
func Devices() ([]*Device, error) {
	forkByEnvironment(os.Stderr)
	providers.mu.Lock()
	list := slices.Clone(providers.list)
	providers.mu.Unlock()
	devices := []*Device{}
	if len(list) == 0 {
		return devices, newError("get_device_list", "", ENOSYS, "no provider is linked into this program; "+
			`import one: _ "github.com/verbena-rdma/verbena/provider/soft"`)
	}
	var errs, absences []error
	for _, p := range list {
		drivers, err := p.Devices()
		switch {
		case errors.Is(err, ENODEV):
			absences = append(absences, driverError("get_device_list", "provider "+p.Name(), err))
		case err != nil:
			errs = append(errs, driverError("get_device_list", "provider "+p.Name(), err))
		}
		for _, drv := range drivers {
			d := &Device{drv, drv.Info(), p.Name()}
			if slices.ContainsFunc(devices, func(other *Device) bool { return other.Name() == d.Name() }) {
				errs = append(errs, newError("get_device_list", "provider "+p.Name(), syscall.EEXIST,
					"two devices are named %s; the second is left out", d.Name()))
				continue
			}
			devices = append(devices, d)
		}
	}
	if len(devices) == 0 {
		errs = append(errs, absences...)
		if len(errs) == 0 {
			errs = append(errs, notImported(list)) // errors.Join leaves nil out
		}
	}
	warnUndriven(os.Stderr, devices)
	return devices, errors.Join(errs...)
}

// notImported is an error if the environment selects a provider that the program does not have. The providers read the
// variable, but none of them knows of this.
func notImported(list []DriverProvider) error {
	const env = "VERBENA_PROVIDER"
	selected := os.Getenv(env)
	names := make([]string, 0, len(list))
	for _, p := range list {
		names = append(names, p.Name())
	}
	if selected == "" || slices.Contains(names, selected) {
		return nil
	}
	hint := "it must import provider/" + selected
	if selected == "hw" {
		hint += "; of the tools bin/verbena-hw does, which make build-hw builds"
	}
	return &Error{Op: "get_device_list", Errno: ENODEV, Hint: hint, Detail: fmt.Sprintf(
		"%s=%s: this program has no such provider, only %s", env, selected, strings.Join(names, ", "))}
}

// Open opens the device with a name (ibv_get_device_list and ibv_open_device). The empty name selects the first
// device with an active port, or else the first device that opens; package observe reports which one (observe.Device).
// ENODEV for an unknown name; the error lists the known names.
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
	return nil, &Error{Op: "open_device", Errno: ENODEV, Detail: fmt.Sprintf("no device is named %q; %s", name, have),
		Err: listErr}
}

// hasActivePort reports whether one of the device's ports is active.
func (vctx *Context) hasActivePort() bool {
	for port := 1; port <= int(vctx.attr.PhysPortCnt); port++ {
		if attr, err := vctx.QueryPort(uint8(port)); err == nil && attr.State == PortActive {
			return true
		}
	}
	return false
}

func openFirst(devices []*Device, listErr error) (*Context, error) {
	var idle *Context
	errs := []error{listErr}
	for _, d := range devices {
		vctx, err := d.Open()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if vctx.hasActivePort() {
			if idle != nil {
				_ = idle.Close()
			}
			chosen(d, "the first with an active port")
			return vctx, nil
		}
		if idle != nil {
			_ = vctx.Close()
			continue
		}
		idle = vctx
	}
	if idle != nil {
		chosen(idle.Device(), "the first that opens; no port is active")
		return idle, nil
	}
	if err := errors.Join(errs...); err != nil {
		return nil, driverError("open_device", "", err)
	}
	return nil, &Error{Op: "open_device", Errno: ENODEV, Detail: "there is no device", Hint: "verbena doctor says why"}
}

// chosen reports the device that Open has chosen.
func chosen(d *Device, why string) {
	if !observe.On() {
		return
	}
	if err := absent(); err != nil {
		why += "; " + err.Error()
	}
	observe.Emit(observe.Event{Name: observe.Device, Device: d.Name(), Reason: why})
}

// Name returns the device's name, unique on this machine: "vrb_eth0" (ibv_get_device_name).
func (d *Device) Name() string { return d.info.Name }

// GUID returns the device's GUID (ibv_get_device_guid).
func (d *Device) GUID() GUID { return d.info.GUID }

// NodeType returns the kind of the device (node_type of struct ibv_device).
func (d *Device) NodeType() NodeType { return d.info.NodeType }

// TransportType returns the device's transport (transport_type of struct ibv_device).
func (d *Device) TransportType() TransportType { return d.info.Transport }

// Provider returns the name of the provider that lists the device: "soft", "iwarp" for the software devices, "hw" for
// adapters and the kernel's devices (decision 28). It is empty for a device that the program has made (soft.NewDevice).
// It has no C twin.
func (d *Device) Provider() string { return d.provider }

// Interface returns the name of the device's network interface; empty if there is none.
func (d *Device) Interface() string { return d.info.Interface }

// String returns the name.
func (d *Device) String() string { return d.info.Name }
