package lookup

import "net/netip"

// Probe returns the payload of a datagram from src to dst that its receiver drops.
type Probe func(src, dst netip.AddrPort) []byte
