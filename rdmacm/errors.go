package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Error is a failed call: what was called (the C function's name without rdma_), on which ID, why it failed and
// what would have been allowed. errors.Is and errors.As find its errno.
type Error = verbs.Error

// ErrClosed says that the ID or channel was closed before. errors.Is also finds EINVAL, os.ErrClosed and net.ErrClosed in it.
var ErrClosed = verbs.ErrClosed

func (id *ID) fail(op string, errno syscall.Errno, format string, args ...any) error {
	return &Error{Op: op, Obj: id.obj(), Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// because wraps the cause of a failed call. A cause without an errno counts as EIO.
func (id *ID) because(op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Obj: id.obj(), Errno: errnoOf(err), Err: err}
}

func errnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

func (id *ID) obj() string { return fmt.Sprintf("%v ID %v-%v", id.ps, id.local, id.remote) }

// in checks the ID's state for a call. The caller holds id.mu.
func (id *ID) in(op string, allowed ...state) error {
	if id.state == stDestroying {
		return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
	}
	for _, s := range allowed {
		if id.state == s {
			return nil
		}
	}
	return id.fail(op, syscall.EINVAL, "the ID is in %v; allowed in %v", id.state, allowed)
}
