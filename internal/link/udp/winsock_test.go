package udp

import (
	"net"
	"os"
	"syscall"
	"testing"
)

// The engine ends a request early for some errors, which it knows by their portable numbers.
func TestErrnosOfWindows(t *testing.T) {
	for number, want := range map[syscall.Errno]syscall.Errno{
		10013: syscall.EACCES, 10040: syscall.EMSGSIZE, 10048: syscall.EADDRINUSE, 10049: syscall.EADDRNOTAVAIL,
		10051: syscall.ENETUNREACH, 10054: syscall.ECONNRESET, 10061: syscall.ECONNREFUSED, 10065: syscall.EHOSTUNREACH,
		10055: 10055, syscall.EPERM: syscall.EPERM,
	} {
		err := &net.OpError{Op: "write", Net: "udp", Err: os.NewSyscallError("wsasendto", number)}
		if got := errnoOf(err); got != want {
			t.Errorf("errno %d: %d (%v), want %d (%v)", number, got, got, want, want)
		}
	}
	if got := errnoOf(net.ErrClosed); got != syscall.EIO {
		t.Errorf("an error without an errno: %v, want EIO", got)
	}
}
