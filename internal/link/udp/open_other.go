//go:build !linux

package udp

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Open opens a link. It fails with EADDRINUSE when another program holds the port at one of
// the addresses, and with EADDRNOTAVAIL when an address is not this machine's.
func Open(cfg Config) (link.Link, error) { return openPlain(cfg) }

func portHolder(netip.AddrPort) string { return "another program; stop it, or use another address" }
