package soft

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/engine"
	"github.com/verbena-rdma/verbena/internal/mr"
	"github.com/verbena-rdma/verbena/internal/transport"
	"github.com/verbena-rdma/verbena/verbs"
)

// failure is a driver's error: a description, its errno, and the error that caused it.
type failure struct {
	text  string
	errno verbs.Errno
	cause error
}

func (e *failure) Error() string {
	if e.cause != nil && e.text != "" {
		return e.text + ": " + e.cause.Error()
	}
	if e.cause != nil {
		return e.cause.Error()
	}
	return e.text
}

func (e *failure) Unwrap() []error {
	if e.cause != nil {
		return []error{e.errno, e.cause}
	}
	return []error{e.errno}
}

// fail returns a failure without a cause.
func fail(errno verbs.Errno, format string, args ...any) error {
	return &failure{text: fmt.Sprintf(format, args...), errno: errno}
}

// verbsError returns err with an errno, that of the system call or of the engine's error that caused it. doing names
// the operation; it may be empty.
func verbsError(doing string, err error) error {
	if err == nil {
		return nil
	}
	return &failure{text: doing, errno: errnoOf(err), cause: err}
}

// errnos are the errnos of the engine's, the transport's and the MR table's errors.
var errnos = []struct {
	err   error
	errno verbs.Errno
}{
	{transport.ErrQueueFull, verbs.ENOMEM},
	{transport.ErrDraining, verbs.EINVAL},
	{transport.ErrNoAlternate, verbs.EINVAL},
	{transport.ErrArm, verbs.EINVAL},
	{transport.ErrNotArmed, verbs.EINVAL},
	{transport.ErrState, verbs.EINVAL},
	{transport.ErrMoved, verbs.EINVAL},
	{engine.ErrQPLimit, verbs.ENOMEM},
	{engine.ErrQPInUse, verbs.EBUSY},
	{engine.ErrNotShared, verbs.EOPNOTSUPP},
	{engine.ErrSRQLimit, verbs.ENOMEM},
	{engine.ErrMcastFull, verbs.ENOMEM},
	{engine.ErrMcastGroupMax, verbs.ENOMEM},
	{engine.ErrNotAttached, verbs.EINVAL},
	{engine.ErrCQTooFew, verbs.EINVAL},
	{engine.ErrCQOverrun, syscall.EIO},
	{transport.ErrTagsFull, verbs.ENOMEM},
	{transport.ErrOpsFull, verbs.ENOMEM},
	{mr.ErrFull, verbs.ENOMEM},
	{mr.ErrBound, verbs.EBUSY},
}

// errnoOf returns the errno of an error, EIO if it has none.
func errnoOf(err error) verbs.Errno {
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return e.errno
		}
	}
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// badDevices is the error of a wrong entry in VERBENA_DEVICES.
type badDevices struct {
	value, entry string
	err          error
}

func (e *badDevices) Error() string {
	return fmt.Sprintf("%s=%q: entry %q: %v; an entry is INTERFACE or NAME=ADDR[+ADDR...][/ADDR...]", envDevices,
		e.value, e.entry, e.err)
}

func (e *badDevices) Unwrap() []error { return []error{e.err, verbs.EINVAL} }
