package iwtcp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// readv reads into memory of the program, and what follows into buf. Neither is empty. Like the functions of
// internal/mr that are the device's DMA, it does not report to the race detector, as unix.Readv does: a program that
// polls memory which a peer writes is correct.
func readv(fd int, place, buf []byte) (int, error) {
	v := [2]unix.Iovec{{Base: &place[0]}, {Base: &buf[0]}}
	v[0].SetLen(len(place))
	v[1].SetLen(len(buf))
	n, _, e := unix.Syscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&v)), uintptr(len(v)))
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}
