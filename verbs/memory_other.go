//go:build !linux && !darwin && !windows

package verbs

import "os"

// mapMemory takes page-aligned memory from Go's heap, which does not move.
func mapMemory(n int) ([]byte, *os.File, error) {
	page := os.Getpagesize()
	mem := make([]byte, n+page)
	off := (page - int(sliceStart(mem))%page) % page
	return mem[off : off+n : off+n], nil, nil
}

func mapPrivate(n int) ([]byte, *os.File, error) { return mapMemory(n) }

func unmapMemory([]byte) error { return nil }
