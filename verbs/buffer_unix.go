//go:build linux || darwin

package verbs

import "golang.org/x/sys/unix"

func mapMemory(n int) ([]byte, error) {
	return unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
