package soft

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prefetch brings the pages of b into memory, for writing too if write is set.
func prefetch(b []byte, write bool) error {
	advice := uintptr(unix.MADV_POPULATE_READ)
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	page := uintptr(os.Getpagesize())
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from, to := first&^(page-1), (first+uintptr(len(b))+page-1)&^(page-1)
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, advice)
	runtime.KeepAlive(b)
	switch errno {
	case unix.EFAULT, unix.ENOMEM, unix.EHWPOISON:
		return errno
	}
	return nil // it is a hint, which kernels before 5.14 do not understand
}
