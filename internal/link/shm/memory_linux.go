package shm

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ownSeals are on memory that we pass on: its size is fixed, and nobody can write it but through our mapping, which came before.
const ownSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// needSeals must be on memory that we are given: without them, reading could raise SIGBUS.
const needSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW

// memory is a mapping that others see. It goes when nobody refers to it any more, so whoever uses bytes keeps the memory.
type memory struct {
	bytes []byte
}

func mapped(fd, size, prot int) (*memory, error) {
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("link/shm: mmap of %d bytes: %w", size, err)
	}
	m := &memory{b}
	runtime.AddCleanup(m, func(b []byte) { _ = unix.Munmap(b) }, b)
	return m, nil
}

// create makes memory of our own and a descriptor of it to pass on.
func create(size int) (*memory, *os.File, error) {
	fd, err := unix.MemfdCreate("verbena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("link/shm: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	m, err := fill(fd, size)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return m, f, nil
}

func fill(fd, size int) (*memory, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, fmt.Errorf("link/shm: ftruncate to %d bytes: %w", size, err)
	}
	m, err := mapped(fd, size, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, ownSeals); err != nil {
		return nil, fmt.Errorf("link/shm: sealing the memory (Linux 5.1 or later is needed): %w", err)
	}
	return m, nil
}

// attach maps memory that another process has made, which must have the given size, for reading.
func attach(fd, size int) (*memory, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&needSeals != needSeals {
		return nil, fmt.Errorf("link/shm: the peer's memory is not sealed (%#x, %v): %w", seals, err, syscall.EPROTO)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != int64(size) {
		return nil, fmt.Errorf("link/shm: the peer's memory has %d bytes instead of %d (%v): %w", st.Size, size, err, syscall.EPROTO)
	}
	return mapped(fd, size, unix.PROT_READ)
}

// word is the word at a multiple of 8.
func (m *memory) word(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.bytes[off : off+8 : off+8][0]))
}
