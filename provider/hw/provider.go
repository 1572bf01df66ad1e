//go:build linux && (amd64 || arm64)

package hw

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

func init() { driver.Register(&hw) }

// hw is the provider. It keeps its devices, so that contexts of one device have the same driver.
var hw provider

type provider struct {
	mu sync.Mutex
	// +checklocks:mu
	devices map[string]*device // by name and GUID
}

// Name returns "hw".
func (p *provider) Name() string { return driver.HW }

// Devices returns the devices that exist now. An ENODEV says why there are none.
func (p *provider) Devices() ([]verbs.DriverDevice, error) {
	if ok, err := driver.Selected(driver.HW); !ok || err != nil {
		return nil, err
	}
	var list []verbs.DriverDevice
	err := each(func(lib *library, ptr uintptr) error {
		list = append(list, p.device(lib, ptr))
		return nil
	})
	return list, err
}

// Available returns nil if there are devices, and otherwise an error with the reason: no library, no device, no rights.
// It is ENODEV mostly, EINVAL for another value of VERBENA_PROVIDER than the name of a provider. It loads the library
// and is safe for concurrent use. It has no C twin.
func Available() error {
	if ok, err := driver.Selected(driver.HW); err != nil {
		return err
	} else if !ok {
		return absent("%s=%s selects another provider", driver.EnvProvider, os.Getenv(driver.EnvProvider))
	}
	return each(func(*library, uintptr) error { return nil })
}

// Library loads the machine's libibverbs.so.1, also if VERBENA_PROVIDER selects another provider, and returns its file.
// ENODEV without a library, or if it is Verbena's own; ENOSYS if it is not that of rdma-core. It is safe for concurrent
// use. It has no C twin.
func Library() (string, error) {
	lib, err := loaded()
	if err != nil {
		return "", err
	}
	return lib.path, nil
}

// each calls f for each device of the library, until f returns an error.
func each(f func(lib *library, ptr uintptr) error) error {
	lib, err := loaded()
	if err != nil {
		return err
	}
	n := new(int32)
	list, err := lib.object(lib.getDeviceList, uintptr(unsafe.Pointer(n)))
	switch {
	case errors.Is(err, syscall.ENOSYS):
		return absent("the kernel has no RDMA devices for programs: the module ib_uverbs is not loaded; modprobe ib_uverbs")
	case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES):
		return absent("listing the devices of the kernel: the process lacks the right (%v)", err)
	case err != nil:
		return fmt.Errorf("listing the devices of the kernel: %w", err)
	}
	defer call(lib.freeDeviceList, list)
	if *n == 0 {
		return noDevices()
	}
	for i := range uintptr(*n) {
		if err := f(lib, *at[uintptr](list + 8*i)); err != nil {
			return err
		}
	}
	return nil
}

// noDevices returns why the library lists no device.
func noDevices() error {
	known, _ := filepath.Glob(filepath.Join(sysfs, "*"))
	if len(known) == 0 {
		return absent("this machine has no RDMA device")
	}
	names := make([]string, 0, len(known))
	for _, k := range known {
		names = append(names, filepath.Base(k))
	}
	return absent("the kernel has %s, but libibverbs lists no device: the module ib_uverbs is not loaded, or the "+
		"device's "+
		"library is missing (on Debian and Ubuntu: ibverbs-providers)", strings.Join(names, ", "))
}

// sysfs is the folder of the kernel's RDMA devices.
const sysfs = "/sys/class/infiniband"

// device is a DriverDevice. It holds no object of the library: a device may be unplugged at any time.
type device struct {
	info verbs.DriverInfo
	file string // uverbs0
}

// device returns the device of a struct ibv_device.
func (p *provider) device(lib *library, ptr uintptr) *device {
	info := verbs.DriverInfo{
		Name:      text(ptr+offDeviceName, 64),
		NodeType:  verbs.NodeType(*at[int32](ptr + offDeviceNodeType)),
		Transport: verbs.TransportType(*at[int32](ptr + offDeviceTransport)),
	}
	guid := uint64(call(lib.getDeviceGUID, ptr)) // BE, in memory
	info.GUID = *(*verbs.GUID)(unsafe.Pointer(&guid))
	info.Interface = interfaceOf(info.Name)
	p.mu.Lock()
	defer p.mu.Unlock()
	key := info.Name + " " + info.GUID.String()
	d := p.devices[key]
	if d == nil || d.info != info {
		d = &device{info: info, file: text(ptr+offDeviceFile, 64)}
		if p.devices == nil {
			p.devices = map[string]*device{}
		}
		p.devices[key] = d
	}
	return d
}

// interfaceOf returns the network interface of a device's first port, empty if it has none.
func interfaceOf(name string) string {
	for _, f := range []string{"ports/1/gid_attrs/ndevs/0", "ports/1/gid_attrs/ndevs/1", "parent"} {
		b, err := os.ReadFile(filepath.Join(sysfs, name, f))
		if s := strings.TrimSpace(string(b)); err == nil && s != "" {
			return s
		}
	}
	if name := interfaceOfGID(name); name != "" {
		return name
	}
	nets, _ := filepath.Glob(filepath.Join(sysfs, name, "device/net/*"))
	if len(nets) > 0 {
		return filepath.Base(nets[0])
	}
	return ""
}

// interfaceOfGID returns the network interface of an iWARP device, whose GID is the interface's MAC address.
func interfaceOfGID(name string) string {
	b, err := os.ReadFile(filepath.Join(sysfs, name, "ports/1/gids/0"))
	digits := strings.ReplaceAll(strings.TrimSpace(string(b)), ":", "")
	gid, bad := hex.DecodeString(digits)
	if err != nil || bad != nil || len(gid) != 16 || !zero(gid[6:]) {
		return ""
	}
	list, _ := net.Interfaces()
	for i := range list {
		if bytes.Equal(list[i].HardwareAddr, gid[:6]) {
			return list[i].Name
		}
	}
	return ""
}

// zero reports whether all bytes are 0.
func zero(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// Info returns the name and the identity of the device.
func (d *device) Info() verbs.DriverInfo { return d.info }

// KernelManaged says why umad and rdmacm use the device by the kernel.
func (d *device) KernelManaged() string { return "QP 1 of this device is the kernel's" }

// Open makes a context.
func (d *device) Open(up verbs.DriverContextEvents) (verbs.DriverContext, error) {
	found := errors.New("found")
	var c *devContext
	err := each(func(lib *library, ptr uintptr) error {
		if text(ptr+offDeviceName, 64) != d.info.Name {
			return nil
		}
		var err error
		if c, err = d.open(lib, ptr, up); err != nil {
			return err
		}
		return found
	})
	switch err { //nolint:errorlint // found is not wrapped
	case found:
		return c, nil
	case nil:
		return nil, fail(syscall.ENODEV, "the device has been removed")
	}
	return nil, err
}

// openError explains why a device did not open.
func (d *device) openError(err error) error {
	file := "/dev/infiniband/" + d.file
	errno := syscall.EIO
	errors.As(err, &errno)
	switch errno {
	case syscall.EACCES, syscall.EPERM:
		return fail(errno, "%s: the process lacks the right to open it; add the user to the group of the file, or give the "+
			"container the device", file)
	case syscall.ENOENT, syscall.ENXIO, syscall.ENODEV:
		return fail(errno, "%s is missing; give the container the devices of /dev/infiniband", file)
	}
	return fail(errno, "%s: %v", file, errno)
}
