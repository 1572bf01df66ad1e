//go:build !linux

package lookup

import (
	"context"
	"net/netip"
)

// Unreachable returns nil: on this system it is not known whether a datagram arrives.
func Unreachable(ctx context.Context, src netip.Addr, dst netip.AddrPort, probe Probe) error {
	return nil
}

// Withheld is for Linux only. The error is nil.
func Withheld(netip.Addr, netip.AddrPort, Probe) error { return nil }
