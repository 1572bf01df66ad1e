//go:build !race

package mr

import (
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// leastString is the length in bytes from which a string instruction may copy faster than Go's copy. Go's copy is made
// of loads and stores of 32 bytes, and from 1 MiB on of stores that bypass the caches, which slows down the next
// reader.
const leastString = 32 << 10

// dma is copy.
func dma(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < leastString {
		return copy(dst, src)
	}
	d, s := unsafe.SliceData(dst), unsafe.SliceData(src)
	if after := uintptr(unsafe.Pointer(d)) - uintptr(unsafe.Pointer(s)); after < uintptr(n) || !stringsAreFast() {
		return copy(dst, src) // copyString would overwrite what it has not read yet
	}
	copyString(d, s, n)
	return n
}

// copyString copies n bytes with one instruction, in ascending order.
//
//go:noescape
func copyString(dst, src *byte, n int)

// stringsAreFast reports whether copyString is faster than copy on this processor. Some processors announce that it is
// and are slow at some distances of source and destination, so it is measured, once.
var stringsAreFast = sync.OnceValue(func() bool {
	return cpu.X86.HasERMS && compareStrings()
})

// compareStrings measures both copies at several alignments, for some 0.15 ms.
func compareStrings() bool {
	const (
		size   = 64 << 10
		rounds = 6
		slack  = 64
	)
	from, to := make([]byte, size+2*slack), make([]byte, size+2*slack)
	for i := range from {
		from[i], to[i] = 1, 1 // so that the pages exist
	}
	var all, strings time.Duration
	for _, off := range [...][2]int{{0, 0}, {0, 8}, {8, 0}, {slack, 0}, {0, slack}, {1, 3}} {
		dst, src := to[off[0]:][:size], from[off[1]:][:size]
		least, leastOfString := time.Hour, time.Hour
		for range rounds {
			start := time.Now()
			copy(dst, src)
			middle := time.Now()
			copyString(&dst[0], &src[0], size)
			end := time.Now()
			least, leastOfString = min(least, middle.Sub(start)), min(leastOfString, end.Sub(middle))
		}
		if leastOfString > least+least/4 {
			return false
		}
		all, strings = all+least, strings+leastOfString
	}
	return strings < all
}
