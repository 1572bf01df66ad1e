package fdset

import "golang.org/x/sys/unix"

// Raise moves a new descriptor to a number of at least Floor, and returns that number; fd itself if none is free. The
// descriptor closes at exec.
func Raise(fd int) int {
	n := Floor()
	if fd < 0 || fd >= n {
		return fd
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, n)
	if err != nil {
		return fd
	}
	_ = unix.Close(fd)
	return high
}

// Own raises a new descriptor and adds it. It returns the number of Raise.
func Own(fd int) int {
	fd = Raise(fd)
	Add(fd)
	return fd
}

// Dup returns a duplicate of a descriptor, which closes at exec, with a number of at least Floor if one is free.
func Dup(fd int) (int, error) {
	if dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, Floor()); err == nil {
		return dup, nil
	}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
}
