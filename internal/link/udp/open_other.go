//go:build !linux

package udp

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Open opens a link. It returns EADDRINUSE if another program holds the port at one of the addresses, and
// EADDRNOTAVAIL if an address does not belong to this machine.
func Open(cfg Config) (link.Link, error) { return openPlain(cfg) }

func portOwner(netip.AddrPort, bool) string {
	return "another program; stop it, or use another address"
}
