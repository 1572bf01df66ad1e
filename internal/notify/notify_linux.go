package notify

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// FD is such a descriptor. Its calls are made one at a time.
type FD struct{ r int }

// New makes one that is not readable.
func New() (*FD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &FD{r: fd}, err
}

var one = binary.NativeEndian.AppendUint64(nil, 1)

// Num is the descriptor's number.
func (n *FD) Num() int { return n.r }

// Raise makes it readable. Each call is an edge of its own, for those who poll edge-triggered.
func (n *FD) Raise() { _, _ = unix.Write(n.r, one) }

// Clear makes it not readable.
func (n *FD) Clear() {
	var count [8]byte
	_, _ = unix.Read(n.r, count[:])
}

// Close closes it.
func (n *FD) Close() { _ = unix.Close(n.r) }
