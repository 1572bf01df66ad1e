//go:build !linux

package lookup

import (
	"context"
	"net/netip"
)

// Neighbour returns Known: on this system it is not known whether a link address is known.
func Neighbour(src, dst netip.Addr) (Knowledge, error) { return Known, nil }

// Solicit does nothing on this system.
func Solicit(ctx context.Context, src netip.Addr, dst netip.AddrPort, probe Probe) error { return nil }
