//go:build linux && cgo

package main

import (
	"errors"
	"syscall"
	"testing"
	"unsafe"
)

// at calls a function whose second parameter is a uint64_t of C, which a test cannot name.
func at[N ~uint64](f func(unsafe.Pointer, N) ([]byte, error), addr, n uint64) ([]byte, error) {
	return f(*(*unsafe.Pointer)(unsafe.Pointer(&addr)), N(n))
}

// Programs for arm64 lie above 1<<47. The memory is not read.
func TestMemoryAtAnyAddressOfAProcess(t *testing.T) {
	for _, c := range []struct {
		addr, n uint64
		want    error
	}{
		{0x0000_5555_5555_0000, 4096, nil},
		{0x0000_aaaa_c0f6_0000, 4096, nil}, // a program
		{0x0000_ffff_ffff_f000, 4096, nil}, // its stack
		{0x000f_ffff_ffff_f000, 4096, nil}, // 52 bits
		{0x0000_5555_5555_0000, 1 << 62, syscall.ENOMEM},
		{0x0000_5555_5555_0000, ^uint64(0), syscall.ENOMEM},
		{^uint64(0) - 4095, 4096, syscall.ENOMEM},
		{0, 4096, syscall.EFAULT},
	} {
		b, err := at(bytesAt, c.addr, c.n)
		if !errors.Is(err, c.want) || err == nil && uint64(len(b)) != c.n {
			t.Errorf("%#x, %d bytes: %d bytes, %v; want %v", c.addr, c.n, len(b), err, c.want)
		}
	}
}
