package fdset

import (
	"net"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDescriptors(t *testing.T) {
	var fds []int
	for _, f := range []func() (int, error){
		func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) },
		func() (int, error) { return unix.MemfdCreate("test", unix.MFD_CLOEXEC) },
		func() (int, error) { return unix.Eventfd(0, unix.EFD_CLOEXEC) },
		func() (int, error) { return unix.EpollCreate1(unix.EPOLL_CLOEXEC) },
	} {
		for range 2 {
			fd, err := f()
			if err != nil {
				t.Fatal(err)
			}
			fds = append(fds, fd)
		}
		Add(fds[len(fds)-2]) // not the second
	}
	dup, err := unix.FcntlInt(uintptr(fds[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	Add(-1)
	check := func(fd int, want bool) {
		t.Helper()
		var st unix.Stat_t
		_ = unix.Fstat(fd, &st)
		is := Descriptor{FD: fd, Dev: uint64(st.Dev), Ino: st.Ino} //nolint:unconvert // as in inodeOf
		if got := slices.Contains(Descriptors(), is); got != want {
			t.Errorf("descriptor %d in the list: %v, want %v", fd, got, want)
		}
	}
	for i, fd := range fds {
		check(fd, i == 0 || i == 2)
	}
	check(dup, true)
	for _, fd := range append(fds, dup) {
		_ = unix.Close(fd)
	}
	check(fds[0], false)

	// The set does not grow with connections that come and go.
	for range 2000 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@", Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		AddConn(l)
		l.Close()
	}
	known.Lock()
	defer known.Unlock()
	if n := len(known.inodes); n > 1000 {
		t.Errorf("%d inodes", n)
	}
}
