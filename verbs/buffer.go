package verbs

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
	"unsafe"
)

// mapping is a buffer of AllocBuffer.
type mapping struct {
	start uintptr
	mem   []byte
	file  *os.File // holds mem from offset 0; nil if mem is in no file
	mrs   int      // regions over mem; guarded by mappings.mu
}

// mappings holds the buffers of AllocBuffer by address, so that none is freed under a region.
var mappings struct {
	mu sync.Mutex
	// +checklocks:mu
	sorted []*mapping
}

func sliceStart(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }

// findMapping returns the index of the first mapping that begins after addr.
//
// +checklocks:mappings.mu
func findMapping(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(mappings.sorted, addr, func(m *mapping, addr uintptr) int {
		if m.start <= addr {
			return -1
		}
		return cmp.Compare(m.start, addr)
	})
	return i
}

// AllocBuffer allocates n bytes of zeroed, page-aligned memory outside of Go's heap. FreeBuffer frees it.
// Registration does not require it: any other memory may be registered too. It is safe for concurrent use.
//
// On Linux, while the buffer is registered and a QP sends long messages from it to another process of the same host and
// user, or that process READs with a key for all of it, that process may read the whole buffer; this saves a copy.
// AllocPrivateBuffer, or VERBENA_SHM_DIRECT=0 in the environment, prevents it.
//
// Errors: EINVAL if n is not positive, ENOMEM without memory.
func AllocBuffer(n int) ([]byte, error) { return allocBuffer(n, mapMemory) }

// AllocPrivateBuffer is AllocBuffer for memory that no other process maps. Use it for a buffer with the data of several
// peers. A process of this host that has the right to trace this one (ptrace) still reads the bytes of the messages
// that are sent to it from the sender's memory, whatever memory that is. VERBENA_SHM_DIRECT=0 in the environment
// prevents it.
func AllocPrivateBuffer(n int) ([]byte, error) { return allocBuffer(n, mapPrivate) }

func allocBuffer(n int, get func(n int) ([]byte, *os.File, error)) ([]byte, error) {
	if n <= 0 {
		return nil, newError("alloc_buffer", "", EINVAL, "%d bytes: must be 1 or more", n)
	}
	mem, file, err := get(n)
	if err != nil {
		return nil, driverError("alloc_buffer", fmt.Sprintf("%d bytes", n), err)
	}
	m := &mapping{start: sliceStart(mem), mem: mem, file: file}
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	mappings.sorted = slices.Insert(mappings.sorted, findMapping(m.start), m)
	return mem, nil
}

// FreeBuffer frees a buffer of AllocBuffer or AllocPrivateBuffer. buf must not be used afterwards. EBUSY while
// regions are registered over it, EINVAL if buf is not the whole buffer.
func FreeBuffer(buf []byte) error {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	i := findMapping(sliceStart(buf)) - 1
	if i < 0 || mappings.sorted[i].start != sliceStart(buf) || len(mappings.sorted[i].mem) != len(buf) {
		return newError("free_buffer", "", EINVAL, "the memory is not a whole buffer of AllocBuffer")
	}
	m := mappings.sorted[i]
	if m.mrs > 0 {
		return newError("free_buffer", "", EBUSY, "still used by %d MRs", m.mrs)
	}
	if err := unmapMemory(m.mem); err != nil {
		return driverError("free_buffer", "", err)
	}
	if m.file != nil {
		m.file.Close()
	}
	mappings.sorted = slices.Delete(mappings.sorted, i, i+1)
	return nil
}

// BufferFile returns the file behind memory of AllocBuffer and the offset of buf in it, for providers that pass the
// file to another process. The file is open as long as a region is registered over the memory. file is nil if the
// memory is in no file.
func BufferFile(buf []byte) (file *os.File, off int64) {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	at := sliceStart(buf)
	i := findMapping(at) - 1
	if i < 0 {
		return nil, 0
	}
	m := mappings.sorted[i]
	if n := uintptr(len(m.mem)); at-m.start >= n || uintptr(len(buf)) > n-(at-m.start) {
		return nil, 0
	}
	return m.file, int64(at - m.start)
}

// pins are the mappings under a region, which are not freed before unpin.
type pins []*mapping

// pinBuffer keeps the mappings that contain memory of buf from being freed: none, one, or adjacent ones.
func pinBuffer(buf []byte) (p pins) {
	if len(buf) == 0 {
		return nil
	}
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	first, last := sliceStart(buf), sliceStart(buf)+uintptr(len(buf)-1)
	for i := findMapping(last) - 1; i >= 0; i-- {
		m := mappings.sorted[i]
		if first > m.start+uintptr(len(m.mem)-1) {
			break
		}
		m.mrs++
		p = append(p, m)
	}
	return p
}

// ownBuffer reports whether buf is wholly in one buffer of AllocBuffer.
func ownBuffer(buf []byte) bool {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	i := findMapping(sliceStart(buf)) - 1
	if i < 0 {
		return false
	}
	off := sliceStart(buf) - mappings.sorted[i].start
	return off <= uintptr(len(mappings.sorted[i].mem)) && uintptr(len(buf)) <= uintptr(len(mappings.sorted[i].mem))-off
}

func (p pins) unpin() {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	for _, m := range p {
		m.mrs--
	}
}
