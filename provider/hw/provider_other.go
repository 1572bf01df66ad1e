//go:build !linux || !(amd64 || arm64)

package hw

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/driver"
	"github.com/verbena-rdma/verbena/verbs"
)

func init() { driver.Register(provider{}) }

type provider struct{}

// Name returns "hw".
func (provider) Name() string { return driver.HW }

// Devices returns no device, and ENODEV.
func (provider) Devices() ([]verbs.DriverDevice, error) {
	if ok, err := driver.Selected(driver.HW); !ok || err != nil {
		return nil, err
	}
	return nil, Available()
}

// Available returns nil if there are devices, and otherwise an error with the reason. On this system it is ENODEV,
// since there are none.
func Available() error {
	return fmt.Errorf("provider hw is for Linux on amd64 and arm64, not %s/%s: %w", runtime.GOOS, runtime.GOARCH,
		syscall.ENODEV)
}

// Library returns the file of the machine's libibverbs.so.1. On this system it returns ENODEV.
func Library() (string, error) { return "", Available() }
