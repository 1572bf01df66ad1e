package lingering

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// OtherUser runs f in a thread that belongs to another user, and skips the test without the right to do that.
func OtherUser(tb testing.TB, f func()) {
	tb.Helper()
	const nobody = 65533
	done := make(chan bool)
	go func() {
		// For ever, so that the thread, which alone changes its user, ends with the goroutine.
		runtime.LockOSThread()
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno == 0 {
			f()
		}
		done <- errno == 0
	}()
	if !<-done {
		tb.Skip("no right to become another user")
	}
}
