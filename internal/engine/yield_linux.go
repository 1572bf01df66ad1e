package engine

import "golang.org/x/sys/unix"

// yieldCPU lets other threads of the machine run. Without it two processes that poll for each other's messages on one
// core would wait for each other's time slices.
func yieldCPU() { _, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
