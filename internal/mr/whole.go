package mr

import "unsafe"

// A region of the whole address space (implicit on-demand paging) has no length to check against: an address that is
// not mapped is found out by the copy. No peer may name its addresses. The collector ends the process if it finds a
// pointer to a part of Go's heap that holds nothing, and a peer that guesses addresses would find such a part; the
// addresses of the program's own requests are those of its memory.

const (
	lowest = 1 << 16 // no process has memory below, and the collector takes smaller pointers for errors
	top    = 1 << 56 // of the largest address space that a processor of today has
)

// space returns the n bytes of the process at address addr.
func space(addr, n uint64) ([]byte, error) {
	if addr < lowest || addr >= top || n > top-addr || uint64(uintptr(addr)) != addr {
		return nil, ErrBounds
	}
	at := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n), nil
}
