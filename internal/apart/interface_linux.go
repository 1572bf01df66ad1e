package apart

import (
	"testing"

	"golang.org/x/sys/unix"
)

// Interface makes an ioctl call of a socket, such as SIOCSIFMTU, for a network interface of the namespace. set sets the
// value. The test ends if it fails.
func Interface(t testing.TB, name string, call uint, set func(*unix.Ifreq)) {
	t.Helper()
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	set(ifr)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.IoctlIfreq(fd, call, ifr); err != nil {
		t.Fatal(err)
	}
}
