package winsock

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
)

func inUse(err error) bool   { return Is(err, syscall.EADDRINUSE) }
func refused(err error) bool { return Is(err, syscall.ECONNREFUSED) }

// Errors of the system's sockets are recognised, whatever its numbers.
func TestSocketErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if _, err := net.Listen("tcp", at); !inUse(err) || refused(err) {
		t.Errorf("a second listener at %s: %v", at, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", at); !refused(err) || inUse(err) {
		t.Errorf("a connection to %s, where nobody listens: %v", at, err)
	}
	if err := errors.New("other"); refused(err) || inUse(err) || refused(nil) || inUse(nil) {
		t.Error("other errors are taken for those of sockets")
	}
}

// The numbers of Windows are known on each system.
func TestNumbersOfWindows(t *testing.T) {
	for number, is := range map[syscall.Errno]func(error) bool{10048: inUse, 10061: refused} {
		err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connectex", number)}
		if !is(err) || inUse(err) && refused(err) {
			t.Errorf("%d is not known", number)
		}
	}
}
