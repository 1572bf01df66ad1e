package verbs

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// mapMemory maps memory backed by a file of its own (memfd). The file has a fixed size; another process that gets it
// can read but not write it. On a kernel without memfd the memory is anonymous.
func mapMemory(n int) ([]byte, *os.File, error) {
	if mem, file := mapFile(n); mem != nil {
		return mem, file, nil
	}
	return mapPrivate(n)
}

// mapPrivate maps anonymous memory.
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

// checkMemory returns an error for memory that the process may not read, or may not write if write is set: a peer's
// request for it would crash the process. It reads the kernel's list of mappings. If that cannot be read, it allows
// everything.
func checkMemory(buf []byte, write bool) error {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	return checkRange(maps, uint64(sliceStart(buf)), uint64(len(buf)), write)
}

// checkRange walks the lines of maps, "start-end perms ...", which are in the order of addresses.
func checkRange(maps []byte, at, n uint64, write bool) error {
	end := at + n
	for line := range bytes.Lines(maps) {
		span, rest, ok := bytes.Cut(line, []byte{' '})
		from, to, ok2 := bytes.Cut(span, []byte{'-'})
		if !ok || !ok2 || len(rest) < 2 {
			return nil
		}
		first, err1 := strconv.ParseUint(string(from), 16, 64)
		last, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 != nil || err2 != nil {
			return nil
		}
		switch {
		case last <= at:
			continue
		case first > at:
			return fmt.Errorf("address %#x is not mapped", at)
		case rest[0] != 'r':
			return fmt.Errorf("the process may not read the memory at %#x", at)
		case write && rest[1] != 'w':
			return fmt.Errorf("LOCAL_WRITE is not possible: the process may not write the memory at %#x", at)
		}
		if at = last; at >= end {
			return nil
		}
	}
	return fmt.Errorf("address %#x is not mapped", at)
}
