// Package iwarp is the provider of iWARP devices, RDMA over TCP, on Linux: a device vrw_<interface> for each network
// interface. Import it for its effect:
//
//	import _ "github.com/verbena-rdma/verbena/provider/iwarp"
//
// QPs are of type RC and connected by package rdmacm. docs/iwarp.md has what works and what does not. The import brings
// the RoCE devices of package soft too, which makes the devices of both; VERBENA_PROVIDER=iwarp leaves those out. An
// address belongs to a RoCE and to an iWARP device: rdmacm takes the RoCE device unless VERBENA_TRANSPORT is iwarp.
//
// The package imports internal/driver, provider/soft and verbs.
package iwarp

import (
	"github.com/verbena-rdma/verbena/internal/driver"
	_ "github.com/verbena-rdma/verbena/provider/soft" // makes the devices
	"github.com/verbena-rdma/verbena/verbs"
)

func init() {
	driver.StreamsListed = true
	driver.Register(provider{})
}

type provider struct{}

// Name returns "iwarp".
func (provider) Name() string { return driver.IWARP }

// Devices returns the devices that exist now; none if VERBENA_PROVIDER selects another provider.
func (provider) Devices() ([]verbs.DriverDevice, error) {
	if ok, err := driver.Selected(driver.IWARP); !ok || err != nil {
		return nil, err
	}
	return driver.Streams()
}
