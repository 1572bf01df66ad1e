//go:build linux && cgo

package main

// #include "engine.h"
import "C"

import (
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

//export vrb_descriptors
func vrb_descriptors(out *C.struct_vrb_descriptor, n C.int) C.int {
	fds := fdset.Descriptors()
	fds = fds[:min(len(fds), int(n))]
	for i, d := range fds {
		unsafe.Slice(out, len(fds))[i] = C.struct_vrb_descriptor{
			fd: C.int32_t(d.FD), dev: C.uint64_t(d.Dev), ino: C.uint64_t(d.Ino)}
	}
	return C.int(len(fds))
}

// vrb_gate returns the address of a variable, which does not move.
//
//export vrb_gate
func vrb_gate() C.uintptr_t { return C.uintptr_t(uintptr(unsafe.Pointer(fdset.TheGate()))) }

// generation is in the member after the handle of the objects of this engine. Those of a parent, of which a forked
// child has copies, have another.
var generation uint32

//export vrb_set_generation
func vrb_set_generation(n C.uint32_t) C.int {
	generation = uint32(n)
	fdset.SetFloor(min(1024, fdset.Limit()/2)) // as the library of sockets does: the C libraries call this first
	return 0
}
