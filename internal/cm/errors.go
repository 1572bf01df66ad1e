package cm

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire/cmmsg"
)

// Error is a failed call. The ID is unchanged.
type Error struct {
	Op     string // "accept"
	Detail string // the invalid value and the allowed ones
	Errno  syscall.Errno
}

var errnoNames = map[syscall.Errno]string{
	syscall.EINVAL: "EINVAL", syscall.EISCONN: "EISCONN", syscall.ENOMEM: "ENOMEM", syscall.EADDRINUSE: "EADDRINUSE",
}

// Error is one line: "cm accept: the ID is IDLE: must be REQ_RCVD or MRA_REQ_SENT (EINVAL)".
func (e *Error) Error() string {
	return fmt.Sprintf("cm %s: %s (%s)", e.Op, e.Detail, errnoNames[e.Errno])
}

// Unwrap is the errno.
func (e *Error) Unwrap() error { return e.Errno }

func invalid(op, format string, args ...any) error {
	return &Error{Op: op, Detail: fmt.Sprintf(format, args...), Errno: syscall.EINVAL}
}

// wrongState is the error of a call in a wrong state.
func wrongState(op string, id *ID, want ...State) error {
	if id.destroyed {
		return invalid(op, "the ID is destroyed")
	}
	names := make([]string, len(want))
	for i, s := range want {
		names[i] = s.String()
	}
	return invalid(op, "the ID is %v: must be %s", id.state, strings.Join(names, " or "))
}

// ready checks what most calls need: an ID that is not destroyed and in one of the states, and private data that
// fits.
func (id *ID) ready(op string, k cmmsg.Kind, private []byte, want ...State) error {
	if id.destroyed || !id.state.is(want...) {
		return wrongState(op, id, want...)
	}
	return fits(op, k, private)
}

// fresh checks that the ID is new.
func (id *ID) fresh(op string, k cmmsg.Kind, private []byte) error {
	if id.destroyed || id.used {
		return invalid(op, "the ID is used and is %v: must be a new ID", id.state)
	}
	return fits(op, k, private)
}

func fits(op string, k cmmsg.Kind, private []byte) error {
	if len(private) > k.PrivateLen() {
		return invalid(op, "%d bytes of private data: must be 0 to %d in %v", len(private), k.PrivateLen(), k)
	}
	return nil
}

func tableFull(op string, limit int) error {
	return &Error{Op: op, Detail: fmt.Sprintf("the table is full: at most %d connections and look-ups", limit),
		Errno: syscall.ENOMEM}
}
