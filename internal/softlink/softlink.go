// Package softlink gives a device of provider/soft links of the test or the simulation that makes it. A link is written
// against internal/link, so this is no part of soft.Config. The package imports internal/link.
package softlink

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Links replace the sockets of a device.
type Links struct {
	// Open opens the link. It is called for the device's first QP, and again each time that a device all of whose
	// contexts were closed is opened again.
	Open func(addrs []netip.Addr, ports int) (link.Link, error)
	// Raw opens the link of Ethernet frames, for RAW_PACKET QPs, while there are any. nil: the device has none.
	Raw func() (link.Raw, error)
	// MTU is the largest packet of the link in bytes, BTH to ICRC, from which the port's path MTU follows; 0 means that
	// of jumbo frames.
	MTU int
}

// Set puts links into a *soft.Config. Package soft sets it.
var Set func(config any, l Links)

// On returns a soft.Config with these links.
func On[C any](config C, l Links) C {
	Set(&config, l)
	return config
}
