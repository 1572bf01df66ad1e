package notify

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// FD is a notification descriptor, here an eventfd. It is not safe for concurrent use.
type FD struct{ r int }

// New makes an FD that is not readable.
func New() (*FD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &FD{r: fdset.Raise(fd)}, err
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// Num returns the descriptor's number.
func (n *FD) Num() int { return n.r }

// Raise makes the descriptor readable. Each call is a new edge for edge-triggered pollers.
func (n *FD) Raise() { _, _ = unix.Write(n.r, one) }

// Clear makes the descriptor not readable.
func (n *FD) Clear() {
	var count [8]byte
	_, _ = unix.Read(n.r, count[:])
}

// Close closes the descriptor.
func (n *FD) Close() { _ = unix.Close(n.r) }
