//go:build hw

package main

import (
	"github.com/verbena-rdma/verbena/internal/tools/doctor"
	"github.com/verbena-rdma/verbena/provider/hw"
)

// With the build tag hw the tools have the devices of this machine too. They are then linked with the C library.
func init() {
	doctor.Adapters = func() (library string, err error) {
		if err = hw.Available(); err == nil {
			library, err = hw.Library()
		}
		return library, err
	}
}
