//go:build linux || darwin

package endpoint

import (
	"syscall"
	"time"
)

// CPU is the processor time that this process has had.
func CPU() (time.Duration, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0, err
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano()), nil
}
