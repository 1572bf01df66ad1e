//go:build !linux

package lookup

import "net/netip"

// RouteMTU returns the MTU in bytes of the system's route from src to dst; 0: it is not known on this system.
func RouteMTU(src, dst netip.Addr) int { return 0 }
