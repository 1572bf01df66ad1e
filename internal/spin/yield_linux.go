package spin

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// YieldCPU lets other threads run on this core. Without it two processes that poll for each other's messages on one
// core would wait for each other's time slices.
func YieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }

// shortCall makes one of the shortest system calls.
func shortCall() { _, _, _ = unix.RawSyscall(unix.SYS_GETPPID, 0, 0, 0) }

// switches returns how often this thread lost its core to another one while it was runnable.
func switches() int64 {
	var u unix.Rusage
	_, _, _ = unix.RawSyscall(unix.SYS_GETRUSAGE, unix.RUSAGE_THREAD, uintptr(unsafe.Pointer(&u)), 0)
	return int64(u.Nivcsw) //nolint:unconvert // 32 bits on some platforms
}

// Nap puts the thread to sleep as briefly as the kernel can, about 60 us. The goroutine keeps its P.
func Nap() {
	ts := unix.Timespec{Nsec: 1000}
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// Rest puts the thread to sleep for a millisecond; other goroutines use the P. Unlike time.Sleep it takes time of the
// machine in a bubble of synctest too: a goroutine there that sleeps with a mutex stops the bubble's time for good if
// another one waits for the mutex.
func Rest() {
	ts := unix.Timespec{Nsec: 1e6}
	_ = unix.Nanosleep(&ts, nil) // a signal ends it early
}

// CPUTime returns the CPU time that all threads of the process have used, in ns.
func CPUTime() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts)
	return ts.Nano()
}
