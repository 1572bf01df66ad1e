// Package refuse runs a program or a goroutine to which the kernel refuses system calls, as the filters of containers
// and services do, and a function to which it refuses descriptors. It is for tests and needs no privilege. It imports
// golang.org/x/sys.
package refuse

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Exec replaces this process by a program to which the calls of the given numbers are refused with errno. It returns
// only if that fails.
func Exec(errno unix.Errno, calls []uintptr, path string, args, env []string) error {
	if err := Thread(errno, calls...); err != nil { // the thread becomes the program
		return err
	}
	return os.NewSyscallError("execve", unix.Exec(path, args, env))
}

// ExecOnOlder is Exec of a program for which the kernel has no socket option of a number, as an older one.
func ExecOnOlder(option int, path string, args, env []string) error {
	if err := install(withoutOption(uint32(option))); err != nil {
		return err
	}
	return os.NewSyscallError("execve", unix.Exec(path, args, env))
}

// Thread refuses the calls of the given numbers with errno to this goroutine, for good: its thread ends with it.
func Thread(errno unix.Errno, calls ...uintptr) error {
	return install(program(errno, calls))
}

func install(filter []unix.SockFilter) error {
	runtime.LockOSThread() // never unlocked: nothing removes the filter
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
	}
	p := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&p)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}

const (
	load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
	equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	result = unix.BPF_RET | unix.BPF_K
)

// withoutOption returns the filter that refuses setsockopt of an option. The third argument of a call is at 32.
func withoutOption(option uint32) []unix.SockFilter {
	name := uint32(32)
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 { // the lower half comes last
		name += 4
	}
	return []unix.SockFilter{
		{Code: load},
		{Code: equal, Jf: 3, K: unix.SYS_SETSOCKOPT},
		{Code: load, K: name},
		{Code: equal, Jf: 1, K: option},
		{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOPROTOOPT)},
		{Code: result, K: unix.SECCOMP_RET_ALLOW},
	}
}

// program returns the filter. The first word of its input is the number of the call.
func program(errno unix.Errno, calls []uintptr) []unix.SockFilter {
	f := []unix.SockFilter{{Code: load}}
	for _, n := range calls {
		f = append(f, unix.SockFilter{Code: equal, Jf: 1, K: uint32(n)},
			unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	return append(f, unix.SockFilter{Code: result, K: unix.SECCOMP_RET_ALLOW})
}
