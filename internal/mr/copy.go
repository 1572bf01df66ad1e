package mr

import (
	"encoding/binary"
	"sync"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// The functions of this file are the device's reads and writes of user memory. A real
// adapter's DMA is invisible to the race detector, and programs that poll a buffer which
// a peer writes are correct RDMA programs; so the detector is kept out of here, and only here.

// Copy copies min(len(dst), len(src)) bytes between user memory and a packet.
func Copy(dst, src []byte) int { return dma(dst, src) }

// CopySum is Copy of all of src, and returns the register of a CRC that was 0, with src put in; see wire.CopySum. src has at least wire.LeastSum + 15 bytes.
func CopySum(dst, src []byte) uint32 {
	odd := len(src) & 15
	dma(dst, src[:odd])
	return wire.CopySum(wire.Sum(0, dst[:odd]), dst[odd:], src[odd:])
}

// unaligned serialises atomics on memory whose address the processor cannot handle atomically.
var unaligned sync.Mutex

// FetchAdd adds to the 8 bytes of b, in host byte order, and returns what they held.
func FetchAdd(b []byte, add uint64) uint64 {
	if p := word(b); p != nil {
		return addWord(p, add) - add
	}
	return slowAtomic(b, func(v uint64) uint64 { return v + add })
}

// CompareSwap stores swap in the 8 bytes of b, in host byte order, if they equal compare, and returns what they held.
func CompareSwap(b []byte, compare, swap uint64) uint64 {
	p := word(b)
	if p == nil {
		return slowAtomic(b, func(v uint64) uint64 {
			if v == compare {
				return swap
			}
			return v
		})
	}
	for {
		v := Load(b)
		if v != compare || casWord(p, v, swap) {
			return v
		}
	}
}

// Set stores v in the 8 bytes of b, in host byte order, all of it at once, as CompareSwap does.
func Set(b []byte, v uint64) {
	for was := Load(b); ; {
		held := CompareSwap(b, was, v)
		if held == was {
			return
		}
		was = held
	}
}

func word(b []byte) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b[:8]))
	if uintptr(p)%8 != 0 {
		return nil
	}
	return (*uint64)(p)
}

func slowAtomic(b []byte, f func(uint64) uint64) uint64 {
	unaligned.Lock()
	defer unaligned.Unlock()
	v := Load(b)
	Store(b, f(v))
	return v
}

// Load reads 8 bytes in host byte order.
func Load(b []byte) uint64 {
	var v [8]byte
	dma(v[:], b[:8])
	return binary.NativeEndian.Uint64(v[:])
}

// Store writes 8 bytes in host byte order.
func Store(b []byte, v uint64) {
	var w [8]byte
	binary.NativeEndian.PutUint64(w[:], v)
	dma(b[:8], w[:])
}
