package verbs

import (
	"os"

	"golang.org/x/sys/unix"
)

// mapMemory gets memory that lies in a file of its own (memfd), which others can be given to read but not to write, and
// whose size is fixed. On a kernel without such files it is ordinary memory.
func mapMemory(n int) ([]byte, *os.File, error) {
	if mem, file := mapFile(n); mem != nil {
		return mem, file, nil
	}
	return mapPrivate(n)
}

// mapPrivate gets memory that lies in no file.
func mapPrivate(n int) ([]byte, *os.File, error) {
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	return mem, nil, err
}

func mapFile(n int) ([]byte, *os.File) {
	if os.Getenv("VERBENA_SHM") == "0" || os.Getenv("VERBENA_SHM_DIRECT") == "0" {
		return nil, nil
	}
	fd, err := unix.MemfdCreate("verbena-buffer", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil
	}
	file := os.NewFile(uintptr(fd), "verbena-buffer")
	page := os.Getpagesize()
	if err := unix.Ftruncate(fd, int64((n+page-1)/page*page)); err != nil {
		file.Close()
		return nil, nil
	}
	mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, nil
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Munmap(mem)
		file.Close()
		return nil, nil
	}
	return mem, file
}

func unmapMemory(mem []byte) error { return unix.Munmap(mem) }
