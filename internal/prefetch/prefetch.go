// Package prefetch asks the processor to read memory into its caches before it is used.
//
// A message on one of very many QPs touches some twenty cache lines that are in none of the caches. One after the
// other, each takes as long as fifty instructions and more. Asked for together, most arrive at the same time. A line
// that another processor has used last is also asked for before it is written.
//
// It imports nothing of the module. On processors other than amd64 and arm64 it does nothing.
package prefetch

import "unsafe"

// line is the length of a cache line in bytes.
const line = 64

// A Target is memory that may be asked for: of a value whose type the holder of the Target need not know. The zero
// Target is none. It keeps its value from being collected.
type Target struct {
	p *byte
	n uintptr // lines
}

// TargetOf returns the first n bytes of *p.
func TargetOf[T any](p *T, n uintptr) Target {
	return Target{(*byte)(unsafe.Pointer(p)), linesOf(unsafe.Pointer(p), n)}
}

// Fetch asks for the memory.
func (t Target) Fetch() { t.FetchLike(t.p) }

// First returns the first byte of the memory, nil of the zero Target.
func (t Target) First() *byte { return t.p }

// FetchLike asks for the memory of another value of the same type, whose first byte is *p; p may be nil.
func (t Target) FetchLike(p *byte) {
	if t.n > 0 && p != nil {
		lines(unsafe.Pointer(p), t.n)
	}
}

// Part asks for the memory of a value from the byte at from to the one before to, without reading p's memory, as the
// address of a field does. p may be nil.
func Part[T any](p *T, from, to uintptr) {
	begin := unsafe.Add(unsafe.Pointer(p), from)
	lines(begin, linesOf(begin, to-from))
}

// Value asks for the memory of *p. It returns at once, and reads nothing itself: concurrent changes of *p are no data
// race. p may be nil.
func Value[T any](p *T) { Part(p, 0, unsafe.Sizeof(*p)) }

// ForWrite asks for the line of p, which other processors' caches lose, so that a store to it need not wait. It changes
// nothing. The caller may write to that memory.
func ForWrite(p unsafe.Pointer) { forWrite(p) }

// linesOf returns the number of lines of n bytes at p.
func linesOf(p unsafe.Pointer, n uintptr) uintptr {
	return (uintptr(p)&(line-1) + n + line - 1) / line
}
