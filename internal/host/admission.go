package host

import "syscall"

// NotAdmittedError is the refusal of verbena serve: it leads at the address and does not admit this user. It is EACCES.
type NotAdmittedError struct {
	Group string // the group whose users it admits; empty if it admits none
	text  string
}

func (e *NotAdmittedError) Error() string { return e.text }

func (e *NotAdmittedError) Unwrap() error { return syscall.EACCES }
