package rsocket

import (
	"net"

	"github.com/verbena-rdma/verbena/rsocket/internal/sock"
	"github.com/verbena-rdma/verbena/verbs"
)

// Error is a failed call: the operation, the socket, what was wrong and what is allowed. errors.Is and errors.As
// find its errno.
type Error = verbs.Error

// ioError makes an error of a connection a net.Error: package net decides by the errno.
type ioError struct{ err error }

func (e ioError) Error() string { return e.err.Error() }
func (e ioError) Unwrap() error { return e.err }
func (e ioError) Timeout() bool {
	t, ok := e.err.(interface{ Timeout() bool })
	return ok && t.Timeout() || sock.ErrnoOf(e.err).Timeout()
}
func (e ioError) Temporary() bool {
	t, ok := e.err.(interface{ Temporary() bool })
	return ok && t.Temporary() || sock.ErrnoOf(e.err).Temporary()
}

// failure returns the error of a call on a socket. Programs compare net.ErrClosed, so it stays as it is.
func failure(op, network string, source, addr net.Addr, err error) error {
	if err != net.ErrClosed {
		err = ioError{err}
	}
	return opError(op, network, source, addr, err)
}

// opError returns the error of a call of a net.Conn or the like.
func opError(op, network string, source, addr net.Addr, err error) error {
	return &net.OpError{Op: op, Net: network, Source: source, Addr: addr, Err: err}
}
