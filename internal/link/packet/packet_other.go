//go:build !linux

package packet

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Supported reports whether the system has packet sockets.
const Supported = false

// Open returns EOPNOTSUPP.
func Open(string) (link.Raw, error) {
	return nil, fmt.Errorf("link/packet: no packet sockets on %s: %w", runtime.GOOS, syscall.EOPNOTSUPP)
}
