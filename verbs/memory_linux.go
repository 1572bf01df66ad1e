package verbs

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
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
	fd = fdset.Raise(fd)
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

// populateMax is the number of bytes up to which the kernel is asked to fault memory in, which takes time for each
// page. Beyond it the list of mappings is faster.
const populateMax = 1 << 20

// checkMemory returns an error for memory that the process may not read, or may not write if write is set: requests for
// it would only fail. A short buffer is faulted in, as registration with an adapter does. If the kernel refuses that,
// cannot do it (before Linux 5.14), or the buffer is long, the kernel's list of mappings decides. If that cannot be
// read, everything is allowed.
func checkMemory(buf []byte, write bool) error {
	if len(buf) <= populateMax && populate(buf, write) {
		return nil
	}
	return checkMappings(buf, write)
}

// populate faults in the pages of buf, for writing if write is set. It reports whether the process has that right for
// all of them.
func populate(buf []byte, write bool) bool {
	page := uintptr(os.Getpagesize())
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	start := at &^ (page - 1)
	end := (at + uintptr(len(buf)) + page - 1) &^ (page - 1)
	advice := unix.MADV_POPULATE_READ
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, start, end-start, uintptr(advice))
		runtime.KeepAlive(buf)
		if errno != unix.EINTR && errno != unix.EAGAIN {
			return errno == 0
		}
	}
}

// checkMappings is checkMemory by the kernel's list of mappings.
func checkMappings(buf []byte, write bool) error {
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
		span, rest, _ := bytes.Cut(line, []byte{' '})
		from, to, _ := bytes.Cut(span, []byte{'-'})
		first, err1 := strconv.ParseUint(string(from), 16, 64)
		last, err2 := strconv.ParseUint(string(to), 16, 64)
		if err1 != nil || err2 != nil || len(rest) < 2 {
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
