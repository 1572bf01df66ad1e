package udp

import (
	"os"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Open opens a link. It fails with EADDRINUSE when another program, or rdma_rxe in this network
// namespace, holds the port at one of the addresses, and with EADDRNOTAVAIL when an address is not this machine's.
func Open(cfg Config) (link.Link, error) {
	if os.Getenv("VERBENA_UDP") == "plain" {
		return openPlain(cfg)
	}
	return openBatched(cfg)
}
