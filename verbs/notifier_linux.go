package verbs

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// notifier is a file descriptor that poll, select and epoll show readable between raise and clear.
type notifier struct{ r int }

func newNotifier() (*notifier, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	return &notifier{r: fd}, err
}

var eventfdOne = binary.NativeEndian.AppendUint64(nil, 1)

// raise makes it readable. Each call is an edge of its own, for those who poll edge-triggered.
func (n *notifier) raise() { _, _ = unix.Write(n.r, eventfdOne) }

func (n *notifier) clear() {
	var count [8]byte
	_, _ = unix.Read(n.r, count[:])
}

func (n *notifier) close() { _ = unix.Close(n.r) }
