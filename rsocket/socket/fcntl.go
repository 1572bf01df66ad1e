package socket

import (
	"syscall"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
)

// Commands of Fcntl, with Linux's values on every system.
const (
	FGetFD = 1
	FSetFD = 2
	FGetFL = 3
	FSetFL = 4
)

// ONonblock is the flag of FSetFL that makes a socket not block (O_NONBLOCK).
const ONonblock = 0o4000

// Fcntl reads and changes flags (rfcntl). ENOTSUP for other commands than the constants of this package.
func (s *Socket) Fcntl(cmd, arg int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return -1, errBadSocket
	}
	switch cmd {
	case FGetFL:
		if s.nonblock.Load() {
			return ONonblock, nil
		}
	case FSetFL:
		s.nonblock.Store(arg&ONonblock != 0)
	case FGetFD:
		return s.o.fdFlags, nil
	case FSetFD:
		s.o.fdFlags = arg
	default:
		return -1, sock.Fail("rfcntl", syscall.ENOTSUP, "command %d", cmd)
	}
	return 0, nil
}

// SetNonblock sets whether calls return EAGAIN instead of waiting (rfcntl with O_NONBLOCK).
func (s *Socket) SetNonblock(on bool) { s.nonblock.Store(on) }
