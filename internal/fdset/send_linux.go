package fdset

import (
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// Send writes b and the control message oob on a connected Unix socket, without SIGPIPE if the peer has closed it: the
// signal would go to the C program, and a debugger stops there. The deadline of c holds.
func Send(c *net.UnixConn, b, oob []byte) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		for {
			var n int
			n, sent = unix.SendmsgN(int(fd), b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
			switch {
			case sent == unix.EINTR:
				continue
			case sent == unix.EAGAIN:
				return false
			case sent != nil:
				return true
			}
			if b, oob = b[n:], nil; len(b) == 0 {
				return true
			}
		}
	})
	if err != nil {
		return err
	}
	return sent
}

// Writer writes on a socket as Send does.
func Writer(c *net.UnixConn) io.Writer { return writer{c} }

type writer struct{ c *net.UnixConn }

func (w writer) Write(b []byte) (int, error) {
	if err := Send(w.c, b, nil); err != nil {
		return 0, err
	}
	return len(b), nil
}
