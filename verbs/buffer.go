package verbs

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"
)

// mapping is a buffer of AllocBuffer.
type mapping struct {
	start uintptr
	mem   []byte
	mrs   int // regions over it, guarded by mappings.mu
}

// mappings holds the buffers of AllocBuffer by address, so that none is freed under a region.
var mappings struct {
	mu     sync.Mutex
	sorted []*mapping
}

func sliceStart(buf []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(buf))) }

// findMapping is the place of the first mapping that begins after addr. The caller holds mappings.mu.
func findMapping(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(mappings.sorted, addr, func(m *mapping, addr uintptr) int {
		if m.start <= addr {
			return -1
		}
		return cmp.Compare(m.start, addr)
	})
	return i
}

// AllocBuffer gets n bytes of zeroed, page-aligned memory outside Go's heap from the system, for registering;
// FreeBuffer gives it back. Any other memory may be registered as well. EINVAL if n is not positive, ENOMEM without
// memory.
func AllocBuffer(n int) ([]byte, error) {
	if n <= 0 {
		return nil, newError("alloc_buffer", "", EINVAL, "%d bytes are not possible", n)
	}
	mem, err := mapMemory(n)
	if err != nil {
		return nil, driverError("alloc_buffer", fmt.Sprintf("%d bytes", n), err)
	}
	m := &mapping{start: sliceStart(mem), mem: mem}
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	mappings.sorted = slices.Insert(mappings.sorted, findMapping(m.start), m)
	return mem, nil
}

// FreeBuffer gives a buffer of AllocBuffer back to the system; nobody may use it afterwards. EBUSY while regions are
// registered over it, EINVAL if it is not a whole buffer of AllocBuffer.
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
	mappings.sorted = slices.Delete(mappings.sorted, i, i+1)
	return nil
}

// pinBuffer keeps the mapping that buf lies in from being freed; nil if it lies in none.
func pinBuffer(buf []byte) *mapping {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	i := findMapping(sliceStart(buf)) - 1
	if i < 0 || sliceStart(buf)-mappings.sorted[i].start >= uintptr(len(mappings.sorted[i].mem)) {
		return nil
	}
	mappings.sorted[i].mrs++
	return mappings.sorted[i]
}

func (m *mapping) unpin() {
	if m == nil {
		return
	}
	mappings.mu.Lock()
	m.mrs--
	mappings.mu.Unlock()
}
