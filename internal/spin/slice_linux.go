package spin

import (
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// shortSlice is the shortest time slice that Linux gives to an ordinary thread, ns.
const shortSlice = 100_000

// sliced has the last threads that ShortSlice has changed. An entry of a thread that has ended costs a call too few at
// most, for a thread that got its number.
var sliced [8]atomic.Int64

// ShortSlice asks for the shortest time slice for the calling thread: since Linux 6.12 such a thread, when it wakes up,
// takes the core from a thread with an ordinary slice, and gets no more time than others in total. It changes nothing
// on older kernels and for threads of real-time policies.
func ShortSlice() {
	id, _, _ := unix.RawSyscall(unix.SYS_GETTID, 0, 0, 0)
	last := &sliced[id%uintptr(len(sliced))]
	if last.Load() == int64(id) {
		return
	}
	last.Store(int64(id))
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr}
	p := uintptr(unsafe.Pointer(&attr))
	if _, _, e := unix.RawSyscall6(unix.SYS_SCHED_GETATTR, 0, p, unix.SizeofSchedAttr, 0, 0, 0); e != 0 ||
		attr.Policy != unix.SCHED_NORMAL {
		return
	}
	attr.Size, attr.Runtime = unix.SizeofSchedAttr, shortSlice
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_SETATTR, 0, p, 0)
}
