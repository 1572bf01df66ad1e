//go:build race

package mr

import "unsafe"

// dma copies word by word: the copy builtin reports to the race detector even from a norace function.
//
//go:norace
func dma(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n == 0 {
		return 0
	}
	d, s := unsafe.Pointer(unsafe.SliceData(dst)), unsafe.Pointer(unsafe.SliceData(src))
	i := 0
	for ; i+8 <= n; i += 8 {
		*(*[8]byte)(unsafe.Add(d, i)) = *(*[8]byte)(unsafe.Add(s, i))
	}
	for ; i < n; i++ {
		*(*byte)(unsafe.Add(d, i)) = *(*byte)(unsafe.Add(s, i))
	}
	return n
}

// visibly is copy: the race detector sees it.
func visibly(dst, src []byte) int { return copy(dst, src) }
