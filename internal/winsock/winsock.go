// Package winsock translates the errors of Windows' sockets. They have numbers of their own, for which errors.Is finds
// no errno of package syscall. No other system has errors with these numbers. It imports nothing of the module.
package winsock

import (
	"errors"
	"syscall"
)

const (
	wsaEACCES       = syscall.Errno(10013)
	wsaEMSGSIZE     = syscall.Errno(10040)
	wsaEADDRINUSE   = syscall.Errno(10048)
	wsaENETUNREACH  = syscall.Errno(10051)
	wsaECONNRESET   = syscall.Errno(10054)
	wsaECONNREFUSED = syscall.Errno(10061)
	wsaEHOSTUNREACH = syscall.Errno(10065)

	wsaEADDRNOTAVAIL = syscall.Errno(10049)
)

// Is is errors.Is for an errno, by which it also knows the error of Windows' sockets.
func Is(err error, want syscall.Errno) bool {
	var e syscall.Errno
	return errors.Is(err, want) || errors.As(err, &e) && Portable(e) == want
}

// Portable returns the errno of package syscall for an error of Windows' sockets, and all others as they are.
func Portable(e syscall.Errno) syscall.Errno {
	switch e {
	case wsaEACCES:
		return syscall.EACCES
	case wsaEMSGSIZE:
		return syscall.EMSGSIZE
	case wsaEADDRINUSE:
		return syscall.EADDRINUSE
	case wsaEADDRNOTAVAIL:
		return syscall.EADDRNOTAVAIL
	case wsaENETUNREACH:
		return syscall.ENETUNREACH
	case wsaECONNRESET:
		return syscall.ECONNRESET
	case wsaECONNREFUSED:
		return syscall.ECONNREFUSED
	case wsaEHOSTUNREACH:
		return syscall.EHOSTUNREACH
	}
	return e
}
