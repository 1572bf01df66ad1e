package sock

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// ErrnoOf returns the errno in an error; EIO without one.
func ErrnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// connectError gives the error of a failed connection the errno that sockets have for it.
func connectError(err error) error {
	//nolint:errorlint // a wrapping error says more, and is kept
	if own, ok := err.(*verbs.Error); ok && own.Op == "connect" {
		return err
	}
	return &verbs.Error{Op: "connect", Errno: ErrnoOf(err), Err: err}
}

// Fail returns the error of a call.
func Fail(op string, errno syscall.Errno, format string, args ...any) error {
	return &verbs.Error{Op: op, Errno: errno, Detail: fmt.Sprintf(format, args...)}
}
