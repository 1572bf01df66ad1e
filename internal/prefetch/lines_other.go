//go:build !amd64 && !arm64

package prefetch

import "unsafe"

func lines(unsafe.Pointer, uintptr) {}

func forWrite(unsafe.Pointer) {}
