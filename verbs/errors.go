package verbs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// Errno is the type of the C functions' errno. errors.Is(err, syscall.EINVAL) works with every error of this package;
// errors.As finds the number.
type Errno = syscall.Errno

// Short names for the numbers that this package returns most often. Package syscall has the others, such as EIO, EPERM,
// EFAULT, ENXIO and EBADF.
const (
	EAGAIN     = syscall.EAGAIN
	EBUSY      = syscall.EBUSY
	EINVAL     = syscall.EINVAL
	ENODATA    = syscall.ENODATA
	ENODEV     = syscall.ENODEV
	ENOENT     = syscall.ENOENT
	ENOMEM     = syscall.ENOMEM
	ENOSYS     = syscall.ENOSYS
	EOPNOTSUPP = syscall.EOPNOTSUPP
)

var errnoNames = map[Errno]string{
	EAGAIN: "EAGAIN", EBUSY: "EBUSY", EINVAL: "EINVAL", ENODATA: "ENODATA", ENODEV: "ENODEV", ENOENT: "ENOENT",
	ENOMEM: "ENOMEM",
	ENOSYS: "ENOSYS", EOPNOTSUPP: "EOPNOTSUPP", syscall.EPERM: "EPERM", syscall.EACCES: "EACCES", syscall.EIO: "EIO",
	syscall.EFAULT: "EFAULT", syscall.EMFILE: "EMFILE", syscall.ENFILE: "ENFILE", syscall.EADDRINUSE: "EADDRINUSE",
	syscall.EADDRNOTAVAIL: "EADDRNOTAVAIL", syscall.ENETUNREACH: "ENETUNREACH", syscall.ENOSPC: "ENOSPC",
	syscall.ENXIO:        "ENXIO",
	syscall.EHOSTUNREACH: "EHOSTUNREACH", syscall.ENETDOWN: "ENETDOWN", syscall.EEXIST: "EEXIST",
	syscall.EMSGSIZE:     "EMSGSIZE",
	syscall.ECONNREFUSED: "ECONNREFUSED", syscall.ECONNRESET: "ECONNRESET", syscall.ETIMEDOUT: "ETIMEDOUT",
	syscall.EPIPE:    "EPIPE",
	syscall.ENOTCONN: "ENOTCONN", syscall.EISCONN: "EISCONN", syscall.EINPROGRESS: "EINPROGRESS",
	syscall.EDESTADDRREQ: "EDESTADDRREQ",
	syscall.EPROTO:       "EPROTO", syscall.EPROTONOSUPPORT: "EPROTONOSUPPORT", syscall.EBADF: "EBADF",
	syscall.EINTR:     "EINTR",
	syscall.ENOBUFS:   "ENOBUFS",
	syscall.ECANCELED: "ECANCELED",
}

// Error is a failed call: the operation, the object, what was wrong and what is allowed.
type Error struct {
	Op     string // the C function's name without ibv_: "modify_qp"
	Obj    string // the object: "RC QP 0x000011"; may be empty
	Detail string // what was wrong
	Errno  Errno
	Hint   string // what is allowed, if Detail does not contain it; may be empty
	Err    error  // the cause, if it is another error
}

// Error returns one line: "modify_qp: INIT->RTR: missing QP_AV, QP_DEST_QPN (EINVAL) [RC QP 0x000011]".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if name := errnoNames[e.Errno]; name != "" && (e.Err == nil || !strings.Contains(e.Err.Error(), "("+name+")")) {
		b.WriteString(" (" + name + ")")
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	if e.Obj != "" {
		b.WriteString(" [" + e.Obj + "]")
	}
	return b.String()
}

// Is makes errors.Is find the errno. ENOSYS and EOPNOTSUPP are equal here.
func (e *Error) Is(target error) bool {
	errno, ok := target.(Errno)
	return ok && (e.Errno == errno || unsupported(e.Errno) && unsupported(errno)) ||
		unsupported(e.Errno) && (target == errors.ErrUnsupported || target == ErrNotSupported)
}

// As makes errors.As find the errno.
func (e *Error) As(target any) bool {
	p, ok := target.(*Errno)
	if ok {
		*p = e.Errno
	}
	return ok
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func unsupported(e Errno) bool { return e == ENOSYS || e == EOPNOTSUPP || e == syscall.ENOTSUP }

// ErrNotSupported: the device lacks the feature. errors.Is finds ENOSYS, EOPNOTSUPP and errors.ErrUnsupported in it.
var ErrNotSupported error = &Error{Op: "verbs", Detail: "the device does not support this", Errno: EOPNOTSUPP}

// ErrClosed: the object is closed. errors.Is also finds EINVAL, os.ErrClosed and net.ErrClosed in it.
var ErrClosed error = closedError{}

type closedError struct{}

func (closedError) Error() string { return "use of a closed object" }

func (closedError) Is(target error) bool {
	return target == os.ErrClosed || target == net.ErrClosed || target == EINVAL
}

// errClosed returns the error of op on a closed object.
func errClosed(op, obj string) error {
	return &Error{Op: op, Obj: obj, Errno: EINVAL, Err: ErrClosed}
}

func newError(op, obj string, errno Errno, format string, args ...any) error {
	return &Error{Op: op, Obj: obj, Errno: errno, Detail: fmt.Sprintf(format, args...)}
}

// badInput adds the operation and the object to the reason for refusing a call. The errno is EINVAL, unless err
// carries another one.
func badInput(op, obj string, err error) error {
	if err == nil {
		return nil
	}
	errno := EINVAL
	if errors.As(err, &errno) {
		return &Error{Op: op, Obj: obj, Errno: errno, Err: err}
	}
	return &Error{Op: op, Obj: obj, Errno: EINVAL, Detail: err.Error()}
}

// driverError adds the operation and the object to a driver's error. An error without an errno counts as EIO.
func driverError(op, obj string, err error) error {
	if err == nil {
		return nil
	}
	errno := syscall.EIO
	errors.As(err, &errno)
	e := &Error{Op: op, Obj: obj, Errno: errno, Err: err}
	if errno == syscall.EMFILE && !strings.Contains(err.Error(), "ulimit") {
		e.Hint = descriptorHint(fdset.Limit())
	}
	return e
}

// descriptorHint says how to raise the limit of descriptors; have is the limit, 0 if it is unknown.
func descriptorHint(have int) string {
	const enough = 1024
	text := fmt.Sprintf("raise the limit of descriptors: ulimit -n %d, or LimitNOFILE= of systemd", max(enough, 4*have))
	if have > 0 {
		text = fmt.Sprintf("the process may have %d descriptors; %s", have, text)
	}
	return text
}

// PostError is a failed post call: the requests before Index are posted, the others are not (bad_wr).
type PostError struct {
	Index int
	Err   error // an *Error
}

// Error returns the index of the first request that is not posted, and the reason.
func (e *PostError) Error() string { return fmt.Sprintf("request %d: %v", e.Index, e.Err) }

// Unwrap returns the reason.
func (e *PostError) Unwrap() error { return e.Err }

// ReregError is a failed MR.Rereg. Code is the state of the region.
type ReregError struct {
	Code ReregMRErrCode
	Err  error
}

// Error returns the reason and the code.
func (e *ReregError) Error() string { return fmt.Sprintf("%v [%v]", e.Err, e.Code) }

// Unwrap returns the reason.
func (e *ReregError) Unwrap() error { return e.Err }
