package tool

import (
	"errors"
	"syscall"
)

// Numbers of Winsock, whose errors package syscall does not translate. No other system has such errors.
const (
	winsockInUse   = syscall.Errno(10048)
	winsockRefused = syscall.Errno(10061)
)

// Refused reports whether nobody listens at the port that a socket was to connect to.
func Refused(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, winsockRefused)
}

// InUse reports whether another socket has the port that one was to listen at.
func InUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, winsockInUse)
}
