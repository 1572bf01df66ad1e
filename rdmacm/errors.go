package rdmacm

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/cm"
	"github.com/verbena-rdma/verbena/verbs"
)

// Error is a failed call: the call (the C function's name without rdma_), the ID, what was wrong and what is allowed.
// errors.Is and errors.As find its errno.
type Error = verbs.Error

// ErrClosed: the ID or channel was closed before. errors.Is also finds EINVAL, os.ErrClosed and net.ErrClosed in it.
var ErrClosed = verbs.ErrClosed

// fail is the error of a failed call.
//
// +checklocks:id.mu
func (id *ID) fail(op string, errno syscall.Errno, format string, args ...any) error {
	return &Error{Op: op, Obj: id.obj(), Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// wrong is fail for callers that do not hold id.mu.
func (id *ID) wrong(op string, errno syscall.Errno, format string, args ...any) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.fail(op, errno, format, args...)
}

// lacking is the error of a call that needs what the ID does not have: ErrClosed after Close, which took it away.
func (id *ID) lacking(op, text string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == stDestroying {
		return id.errClosed(op)
	}
	return id.fail(op, syscall.EINVAL, "%s", text)
}

// because wraps the cause of a failed call. A cause without an errno counts as EIO.
//
// +checklocks:id.mu
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

// fault is the cause of an error, with its errno.
type fault struct {
	text  string
	errno syscall.Errno
}

func (f *fault) Error() string { return f.text }
func (f *fault) Unwrap() error { return f.errno }

// errClosed is the error of a call for an ID that was closed.
//
// +checklocks:id.mu
func (id *ID) errClosed(op string) error {
	return &Error{Op: op, Obj: id.obj(), Errno: syscall.EINVAL, Err: ErrClosed}
}

// errnoOf is the errno of an error, EIO if it has none.
func errnoOf(err error) syscall.Errno {
	errno := syscall.EIO
	errors.As(err, &errno)
	return errno
}

// obj names the ID in errors: "TCP ID 192.0.2.1:40000 to 192.0.2.2:7471".
//
// +checklocks:id.mu
func (id *ID) obj() string {
	s := id.ps.String() + " ID"
	switch {
	case id.local.IsValid() && id.local.Port() == 0: // TCP has not chosen it yet
		s += " " + id.local.Addr().String()
	case id.local.IsValid():
		s += " " + id.local.String()
	}
	if id.remote.IsValid() {
		s += " to " + id.remote.String()
	}
	return s
}

// stateList is "IDLE, ADDR_BOUND or LISTEN".
func stateList(states []state) string {
	var b strings.Builder
	for i, s := range states {
		switch {
		case i > 0 && i == len(states)-1:
			b.WriteString(" or ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(s.String())
	}
	return b.String()
}

// String names the ID as errors do: "TCP ID 192.0.2.1:40000 to 192.0.2.2:7471". It is safe for concurrent use.
func (id *ID) String() string { return id.lockedObj() }

// lockedObj is obj for callers that do not hold id.mu.
func (id *ID) lockedObj() string {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.obj()
}

// in checks that the ID is in one of the states that a call allows.
//
// +checklocks:id.mu
func (id *ID) in(op string, allowed ...state) error {
	if id.state == stDestroying {
		return id.errClosed(op)
	}
	for _, s := range allowed {
		if id.state == s {
			return nil
		}
	}
	return id.fail(op, syscall.EINVAL, "the ID is in %v: must be in %v", id.state, stateList(allowed))
}
