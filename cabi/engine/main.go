// Engine is Verbena as a C shared library, libverbena-engine.so: what the C libraries of folder cabi load at first use.
//
// It owns the conversion between the structures of verbs.h and package verbs, and the handles that C holds. engine.h is
// its interface: a table of functions over plain data, and cm.h that for librdmacm. It needs cgo and Linux; make cabi
// builds it. It imports verbs, rdmacm, umad, rsocket/socket, provider/soft and
// internal/{control,driver,engine,fdset,mr,notify,seam}.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "engine: this is a shared library for C programs; build it with: make cabi")
	os.Exit(2)
}
