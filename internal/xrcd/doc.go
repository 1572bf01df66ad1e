// Package xrcd connects the processes of one user that have an XRC domain of the same file open on the same device: its
// members. A member has a number, which no other one has meanwhile, and connections that carry messages between two
// members in order.
//
// The number is a name in the abstract namespace of Unix sockets: whoever listens at it has it, and it ends with the
// process. What the members say to each other is a matter of provider/soft.
//
// The package imports internal/{fdset,peeruser,untrusted} and golang.org/x/sys. Domains are shared on Linux only.
package xrcd

import "errors"

// Members is the maximum number of members of a domain.
const Members = 256

// Errors of Join.
var (
	// ErrExists: the domain exists, and the caller wants to create it.
	ErrExists = errors.New("another process has the XRC domain of the file")
	// ErrNone: the domain does not exist, and the caller does not want to create it.
	ErrNone = errors.New("the file has no XRC domain")
	// ErrForeign: processes of another user have the domain.
	ErrForeign = errors.New("a process of another user has the XRC domain of the file")
	// ErrFull: the domain has as many members as it can have.
	ErrFull = errors.New("256 processes have the XRC domain of the file")
	// ErrBusy: other processes have been joining all the time.
	ErrBusy = errors.New("another process is opening the XRC domain of the file")
	// ErrUnsupported: processes cannot share domains here.
	ErrUnsupported = errors.New("the system has no abstract Unix sockets")
)

// ErrGone is returned by Dial if a number has no member.
var ErrGone = errors.New("no process has this number in the XRC domain")

// A Domain is a file on a device.
type Domain struct {
	Device   string // its name on this host
	Dev, Ino uint64 // of the file
}

// How says what Join does if the domain does not exist, or exists.
type How struct {
	Create    bool // create it if no process has it
	Exclusive bool // with Create: fail if a process has it
}
