package mr

import "unsafe"

// Memory of calls that are no verbs, which the program keeps until they return. The race detector sees these accesses:
// they are those of the call.

// pageLen is the smallest page of the systems that Go runs on.
const pageLen = 4096

// Readable returns how many of the first bytes of b can be read: all of them, or those before memory that is not
// mapped.
func Readable(b []byte) int {
	if len(b) == 0 || guarded(func() { touch(b) }) {
		return len(b)
	}
	n := 0
	for n < len(b) && guarded(func() { touch(b[n : n+1]) }) {
		n = min(n+toPageEnd(b[n:]), len(b))
	}
	return n
}

// touch reads a byte of each page of b, which is not empty.
//
//go:noinline
func touch(b []byte) (v byte) {
	v = b[0]
	for n := toPageEnd(b); n < len(b); n += pageLen {
		v |= b[n]
	}
	return v
}

// toPageEnd returns the bytes from the beginning of b to the next page.
func toPageEnd(b []byte) int {
	return pageLen - int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))%pageLen)
}

// TryCopy copies min(len(dst), len(src)) bytes, and reports whether it could access all of them. If not, dst has
// undefined content.
func TryCopy(dst, src []byte) (ok bool) { return guarded(func() { visibly(dst, src) }) }
