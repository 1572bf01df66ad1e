package verbs

import "unsafe"

// noescape hides from the compiler where a slice goes, so that a caller's variables may stay on its stack although a
// driver is called through an interface, of which the compiler fears the worst. A driver must therefore not let the
// slice, or a slice inside of its elements, get anywhere but its own goroutine's stack (see CQDriver.Poll and
// QPDriver.PostSend).
//
// nocheckptr keeps instrumentation, whose calls could move the stack, from getting between the two conversions.
//
//go:nocheckptr
func noescape[T any](s []T) []T {
	x := uintptr(unsafe.Pointer(unsafe.SliceData(s)))
	return unsafe.Slice(*(**T)(unsafe.Pointer(&x)), len(s))
}
