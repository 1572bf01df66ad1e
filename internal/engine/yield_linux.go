package engine

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// yieldCPU lets other threads of the machine run. Without it two processes that poll for each other's messages on one
// core would wait for each other's time slices.
func yieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// shortCall is about the shortest system call.
func shortCall() { _, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) }

// switches counts how often another thread got the core of this one while this one could have run on.
func switches() int64 {
	var u unix.Rusage
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&u)), 0)
	return int64(u.Nivcsw) //nolint:unconvert // it has 32 bits where an int has
}

// napThread puts the thread to sleep for as short as the kernel can, some 60 µs. The goroutine keeps its P.
func napThread() {
	ts := unix.Timespec{Nsec: 1000}
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}
