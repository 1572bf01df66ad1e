package rdmacm

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Error is a failed call: what was called (the C function's name without rdma_), on which ID, why it failed and
// what would have been allowed. errors.Is and errors.As find its errno.
type Error = verbs.Error

// ErrClosed says that the ID or channel was closed before. errors.Is also finds EINVAL, os.ErrClosed and net.ErrClosed in it.
var ErrClosed = verbs.ErrClosed

// fail is a failed call. id.mu is held.
func (id *ID) fail(op string, errno syscall.Errno, format string, args ...any) error {
	return &Error{Op: op, Obj: id.obj(), Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// wrong is fail for callers who do not hold id.mu.
func (id *ID) wrong(op string, errno syscall.Errno, format string, args ...any) error {
	return locked(id, func() error { return id.fail(op, errno, format, args...) })
}

// because wraps the cause of a failed call. id.mu is held. A cause without an errno counts as EIO.
func (id *ID) because(op string, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) && own.Op == op {
		return err
	}
	var inner *cm.Error
	if errors.As(err, &inner) {
		return id.fail(op, inner.Errno, "%s", inner.Detail)
	}
	return &Error{Op: op, Obj: id.obj(), Errno: errnoOf(err), Err: err}
}

func errnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// obj names the ID in errors: "TCP ID 192.0.2.1:40000 to 192.0.2.2:7471".
func (id *ID) obj() string {
	s := id.ps.String() + " ID"
	if id.local.IsValid() {
		s += " " + id.local.String()
	}
	if id.remote.IsValid() {
		s += " to " + id.remote.String()
	}
	return s
}

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
