//go:build !linux

package packet

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/link"
)

// Supported tells whether the system has packet sockets.
const Supported = false

// Open answers EOPNOTSUPP.
func Open(string) (link.Raw, error) {
	return nil, fmt.Errorf("link/packet: there are no packet sockets on %s: %w", runtime.GOOS, syscall.EOPNOTSUPP)
}
