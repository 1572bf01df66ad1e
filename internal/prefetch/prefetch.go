// Package prefetch asks the processor to read memory into its caches before it is used.
//
// A message on one of very many QPs touches some twenty cache lines that are in none of the caches. One after the
// other, each takes as long as fifty instructions and more. Asked for together, most arrive at the same time.
//
// It imports nothing of the module. On processors other than amd64 and arm64 it does nothing.
package prefetch

import "unsafe"

// line is the length of a cache line in bytes.
const line = 64

// Value asks for the memory of *p. It returns at once, and reads nothing itself: concurrent changes of *p are no data
// race. p may be nil.
func Value[T any](p *T) {
	from := uintptr(unsafe.Pointer(p)) & (line - 1)
	lines(unsafe.Pointer(p), (from+unsafe.Sizeof(*p)+line-1)/line)
}
