package refuse

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Descriptors calls f while the process can open no descriptor: its limit is the lowest free number. Other goroutines
// cannot open any either. The error is that of setting the limit and of resetting it.
func Descriptors(f func()) error {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	free, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	few := unix.Rlimit{Cur: uint64(free.Fd()), Max: old.Max}
	if err := errors.Join(free.Close(), setLimit(&few)); err != nil {
		return err
	}
	f()
	return setLimit(&old)
}

func setLimit(r *unix.Rlimit) error {
	return os.NewSyscallError("setrlimit", unix.Setrlimit(unix.RLIMIT_NOFILE, r))
}
