package rdmacm

import (
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// kernelDevice is a device whose connections the kernel manages. It must not be opened.
type kernelDevice struct{ verbs.DriverDevice }

func (kernelDevice) Info() verbs.DriverInfo { return verbs.DriverInfo{Name: "mlx5_0"} }

func (kernelDevice) KernelManaged() string { return "the kernel has it" }

// TestKernelManagedDevicesAreRefused makes a host of such a device.
func TestKernelManagedDevicesAreRefused(t *testing.T) {
	h := NewHost(driver.NewDevice(kernelDevice{}))
	_, err := h.Devices()
	if errnoOf(err) != verbs.EOPNOTSUPP {
		t.Errorf("%v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
