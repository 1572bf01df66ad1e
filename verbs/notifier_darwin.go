package verbs

import "golang.org/x/sys/unix"

// notifier is a file descriptor that poll, select and kqueue show readable between raise and clear.
type notifier struct{ r, w int }

func newNotifier() (*notifier, error) {
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
	return &notifier{r: p[0], w: p[1]}, nil
}

// raise makes it readable. A full pipe is readable anyway.
func (n *notifier) raise() { _, _ = unix.Write(n.w, []byte{1}) }

func (n *notifier) clear() {
	buf := make([]byte, 512)
	for {
		if got, err := unix.Read(n.r, buf); err == unix.EINTR {
			continue
		} else if err != nil || got < len(buf) {
			return
		}
	}
}

func (n *notifier) close() { _, _ = unix.Close(n.r), unix.Close(n.w) }
