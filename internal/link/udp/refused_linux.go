package udp

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refused are the calls for many messages that the system refuses to this process, as filters of containers and
// services do (seccomp). Calls for one message replace them. probe sets it.
var refused struct{ recvmmsg, sendmmsg bool }

// probe finds the refused calls, once. It fails if there is no way to send or receive.
var probe = sync.OnceValue(func() (err error) {
	try := func(number uintptr) (errno unix.Errno, allowed bool) {
		// An allowed call fails with EBADF, in an emulator of system calls (qemu-user) with EFAULT.
		_, _, errno = unix.RawSyscall6(number, ^uintptr(0), 0, 0, 0, 0, 0)
		return errno, errno == unix.EBADF || errno == unix.EFAULT
	}
	for _, c := range []struct {
		name, instead string
		many, one     uintptr
		refused       *bool
	}{
		{"recvmmsg", "recvmsg", unix.SYS_RECVMMSG, unix.SYS_RECVMSG, &refused.recvmmsg},
		{"sendmmsg", "sendmsg", unix.SYS_SENDMMSG, unix.SYS_SENDMSG, &refused.sendmmsg},
	} {
		errno, allowed := try(c.many)
		if allowed {
			continue
		}
		*c.refused = true
		if one, allowed := try(c.one); !allowed {
			err = fmt.Errorf("link/udp: the system refuses the calls %s (%w) and %s (%w) to this process: "+
				"a filter (seccomp) must allow one of them", c.name, errno, c.instead, one)
		}
	}
	return err
})

// oneByOne replaces recvmmsg and sendmmsg by one call for each message. Like these it returns the number of messages,
// or an error if that is 0.
func oneByOne(call uintptr, fd int, hdrs []mmsghdr, flags uintptr) (int, unix.Errno) {
	for i := range hdrs {
		n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[i].Msghdr)), flags)
		if errno != 0 {
			if i > 0 {
				errno = 0
			}
			return i, errno
		}
		hdrs[i].n = uint32(n)
	}
	return len(hdrs), 0
}
