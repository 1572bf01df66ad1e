//go:build amd64 || arm64

package prefetch

import "unsafe"

// lines asks for n lines, at least one, from that of p on. Addresses without memory have no effect.
//
//go:noescape
func lines(p unsafe.Pointer, n uintptr)

// forWrite asks for the line of p, to write to it. An address without memory has no effect.
//
//go:noescape
func forWrite(p unsafe.Pointer)
