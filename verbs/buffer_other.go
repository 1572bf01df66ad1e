//go:build !linux && !darwin

package verbs

import "os"

// mapMemory takes page-aligned memory from Go's heap, which does not move.
func mapMemory(n int) ([]byte, error) {
	page := os.Getpagesize()
	mem := make([]byte, n+page)
	off := (page - int(sliceStart(mem))%page) % page
	return mem[off : off+n : off+n], nil
}

func unmapMemory([]byte) error { return nil }
