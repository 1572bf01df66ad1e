package verbs

import (
	"os"

	"golang.org/x/sys/unix"
)

func mapMemory(n int) ([]byte, *os.File, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return mem, nil, err
}

func mapPrivate(n int) ([]byte, *os.File, error) { return mapMemory(n) }

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
