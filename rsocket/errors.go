package rsocket

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/verbena-rdma/verbena/verbs"
)

// Error is a failed call: what was called, on which socket, why it failed, and what would have been allowed. errors.Is and errors.As
// find its errno.
type Error = verbs.Error

// errnoOf is the errno in an error; EIO without one.
func errnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// ioError makes an error of the connection a net.Error: package net looks at the errno for that.
type ioError struct{ err error }

func (e ioError) Error() string { return e.err.Error() }
func (e ioError) Unwrap() error { return e.err }
func (e ioError) Timeout() bool {
	t, ok := e.err.(interface{ Timeout() bool })
	return ok && t.Timeout() || errnoOf(e.err).Timeout()
}
func (e ioError) Temporary() bool {
	t, ok := e.err.(interface{ Temporary() bool })
	return ok && t.Temporary() || errnoOf(e.err).Temporary()
}

// connectError gives what has prevented a connection the errno that sockets have for it.
func connectError(err error) error {
	if own, ok := err.(*Error); ok && own.Op == "connect" { //nolint:errorlint // what wraps one says more, and is kept
		return err
	}
	return &Error{Op: "connect", Errno: errnoOf(err), Err: err}
}

// opError is the error of a call of a net.Conn or the like.
func opError(op, network string, source, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: source, Addr: addr, Err: err}
}

func fail(op string, errno syscall.Errno, format string, args ...any) error {
	return &Error{Op: op, Errno: errno, Detail: fmt.Sprintf(format, args...)}
}
