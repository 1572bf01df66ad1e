package notify

import "golang.org/x/sys/unix"

// FD is a notification descriptor, here a pipe. It is not safe for concurrent use.
type FD struct{ r, w int }

// New makes an FD that is not readable.
func New() (*FD, error) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return nil, err
	}
	for _, fd := range p {
		unix.CloseOnExec(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			_, _ = unix.Close(p[0]), unix.Close(p[1])
			return nil, err
		}
	}
	return &FD{r: p[0], w: p[1]}, nil
}

// Num returns the descriptor's number.
func (n *FD) Num() int { return n.r }

// Raise makes the descriptor readable. A full pipe is readable already, so the error is ignored.
func (n *FD) Raise() { _, _ = unix.Write(n.w, []byte{1}) }

// Clear makes the descriptor not readable.
func (n *FD) Clear() {
	buf := make([]byte, 512)
	for {
		if got, err := unix.Read(n.r, buf); err == unix.EINTR {
			continue
		} else if err != nil || got < len(buf) {
			return
		}
	}
}

// Close closes the descriptor.
func (n *FD) Close() { _, _ = unix.Close(n.r), unix.Close(n.w) }
