//go:build !linux

package lookup

import (
	"context"
	"net/netip"
	"time"
)

// Closed returns nil: on this system it is not known whether a port is closed.
func Closed(context.Context, netip.Addr, []netip.AddrPort, time.Duration, Probe) []netip.AddrPort {
	return nil
}
