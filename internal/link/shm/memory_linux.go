package shm

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/verbena-rdma/verbena/internal/fdset"
)

// ownSeals are on memory that this process passes on: its size is fixed, and only the mapping of this process, which
// is older than the seals, can write it.
const ownSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL

// needSeals must be on memory from another process, which must also be of tmpfs, so that reading it raises no SIGBUS:
// the size is fixed, and F_SEAL_FUTURE_WRITE forbids punching holes. The kernel allocates a page that was never
// written when it is read. That fails, with SIGBUS, if the pool of huge pages is empty, so those are refused, and
// under strict overcommit (vm.overcommit_memory=2) at the commit limit of the system.
const needSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE

// A memory is a mapping that other processes see. The garbage collector unmaps it, so users of bytes keep the memory.
type memory struct {
	bytes []byte
	// What the garbage collector does.
	unmap, uncount runtime.Cleanup
	foreign        bool // it counts in mappedMemory
}

// release unmaps the memory at once. Nothing uses it any more.
func (m *memory) release() {
	m.unmap.Stop()
	_ = unix.Munmap(m.bytes)
	if m.foreign {
		m.uncount.Stop()
		mappedMemory.drop(len(m.bytes))
	}
	m.bytes = nil
	runtime.KeepAlive(m)
}

func mapped(fd, size, prot int) (*memory, error) {
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("link/shm: mmap of %d bytes: %w", size, err)
	}
	m := &memory{bytes: b}
	m.unmap = runtime.AddCleanup(m, func(b []byte) { _ = unix.Munmap(b) }, b)
	return m, nil
}

// create creates memory, and a descriptor of it to pass on.
func create(size int) (*memory, *os.File, error) {
	fd, err := unix.MemfdCreate("verbena", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, nil, fmt.Errorf("link/shm: memfd_create: %w", err)
	}
	fd = fdset.Own(fd)
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

// attach maps memory of another process, which must have the given size, for reading.
func attach(fd, size int) (*memory, error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&needSeals != needSeals {
		return nil, fmt.Errorf("link/shm: the peer's memory is not sealed (%#x, %v): %w", seals, err, syscall.EPROTO)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return nil, fmt.Errorf("link/shm: the peer's memory is of file system %#x, not of tmpfs (%v): %w",
			fs.Type, err, syscall.EPROTO)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != int64(size) {
		return nil, fmt.Errorf("link/shm: the peer's memory has %d bytes instead of %d (%v): %w",
			st.Size, size, err, syscall.EPROTO)
	}
	if err := mappedMemory.add(size); err != nil {
		return nil, err
	}
	m, err := mapped(fd, size, unix.PROT_READ)
	if err != nil {
		mappedMemory.drop(size)
		return nil, err
	}
	m.foreign, m.uncount = true, runtime.AddCleanup(m, mappedMemory.drop, size)
	return m, nil
}

// mappedMemory limits the memory of other processes that is mapped in this one, for all devices together, until the
// garbage collector unmaps it. Without a limit, peers could use up the address space, or the mappings of a process
// (65530), and either ends a Go program.
var mappedMemory = quota{maxBytes: maxForeign, maxMaps: 16 << 10}

type quota struct {
	maxBytes int
	maxMaps  int

	mu sync.Mutex
	// +checklocks:mu
	bytes int
	// +checklocks:mu
	maps int
}

// add counts a mapping. It returns ENOMEM if there are too many.
func (q *quota) add(size int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.maps >= q.maxMaps || size > q.maxBytes-q.bytes {
		return fmt.Errorf("link/shm: %d bytes of other processes' memory are mapped in %d pieces; no more than %d in %d: %w",
			q.bytes, q.maps, q.maxBytes, q.maxMaps, syscall.ENOMEM)
	}
	q.bytes, q.maps = q.bytes+size, q.maps+1
	return nil
}

func (q *quota) drop(size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bytes, q.maps = q.bytes-size, q.maps-1
}

// word returns the word at an offset, which must be a multiple of 8.
func (m *memory) word(off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&m.bytes[off : off+8 : off+8][0]))
}
