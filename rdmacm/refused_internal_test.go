package rdmacm

import (
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

// kernelDevice is a device whose connections the kernel manages. It cannot be opened.
//
//conformance:fake
type kernelDevice struct{ verbs.DriverDevice }

func (kernelDevice) Info() verbs.DriverInfo { return verbs.DriverInfo{Name: "mlx5_0"} }

func (kernelDevice) KernelManaged() string { return "the kernel has it" }

func (kernelDevice) Open(verbs.DriverContextEvents) (verbs.DriverContext, error) {
	return nil, verbs.ENODEV
}

// TestAdapterWithoutConnectionManager makes a host of an adapter, on a machine that most likely has none.
func TestAdapterWithoutConnectionManager(t *testing.T) {
	h := NewHost(driver.NewDevice(kernelDevice{}))
	_, err := h.Devices()
	if err == nil || errnoOf(err) != verbs.ENODEV && (runtime.GOOS == "linux" || errnoOf(err) != syscall.EOPNOTSUPP) &&
		!strings.Contains(err.Error(), "/dev/infiniband/rdma_cm: ") {
		t.Errorf("%v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}
