package mr

import (
	"encoding/binary"
	"errors"
	"runtime"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// The functions of this file are the device's reads and writes of user memory. The race detector does not see the
// DMA of an adapter, and a program that polls a buffer which a peer writes is a correct RDMA program. So the
// functions of this file, and only they, are hidden from the race detector.
//
// A program can unmap memory, or truncate its file, while a region has it; an adapter would still have the pages. Then
// the functions report false, and the destination has undefined content. Memory that is mapped there by then is
// accessed like the memory before.

// ErrUnmapped is the reason of a copy that failed.
var ErrUnmapped = errors.New("the program has unmapped the memory of the region")

// caught panics again if r, which recover returned, is not a fault.
func caught(r any) {
	type fault interface {
		runtime.Error
		Addr() uintptr
	}
	if _, ok := r.(fault); !ok {
		panic(r)
	}
}

// Copy copies min(len(dst), len(src)) bytes between user memory and a packet, and returns their number.
func Copy(dst, src []byte) (n int, ok bool) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if !ok {
			caught(recover())
		}
	}()
	n = dma(dst, src)
	return n, true
}

// CopySum copies all of src to dst, as Copy does, and returns the CRC register that a register of 0 becomes after
// src; see wire.CopySum. src has at least wire.LeastSum + 15 bytes.
func CopySum(dst, src []byte) (sum uint32, ok bool) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if !ok {
			caught(recover())
		}
	}()
	odd := len(src) & 15
	dma(dst, src[:odd])
	return wire.CopySum(wire.Sum(0, dst[:odd]), dst[odd:], src[odd:]), true
}

// CopyCRC copies all of src to dst, as Copy does, and returns the CRC of an FPDU, crc, continued over src; see
// iwarp.UpdateCRC. If src changes meanwhile, the result is that of the bytes in dst.
func CopyCRC(crc uint32, dst, src []byte) (sum uint32, ok bool) {
	ok = guarded(func() { sum = copyCRC(crc, dst, src) })
	return sum, ok
}

func copyCRC(crc uint32, dst, src []byte) uint32 {
	odd := len(src) & 15
	if !iwarp.SumsWhileCopying || len(src)-odd < iwarp.LeastSum {
		odd = len(src)
	}
	dma(dst, src[:odd])
	crc = iwarp.UpdateCRC(crc, dst[:odd])
	if odd < len(src) {
		crc = iwarp.CopyCRC(crc, dst[odd:], src[odd:])
	}
	return crc
}

// guarded calls f and reports whether it ended without a fault.
func guarded(f func()) (ok bool) {
	was := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(was)
		if !ok {
			caught(recover())
		}
	}()
	f()
	return true
}

// unaligned serialises atomics on memory at addresses that the processor cannot access atomically.
var unaligned sync.Mutex

// FetchAdd adds to the 8 bytes of b, in host byte order, and returns what they held.
func FetchAdd(b []byte, add uint64) (was uint64, ok bool) {
	ok = guarded(func() { was = fetchAdd(b, add) })
	return was, ok
}

func fetchAdd(b []byte, add uint64) uint64 {
	if p := word(b); p != nil {
		return addWord(p, add) - add
	}
	return slowAtomic(b, func(v uint64) uint64 { return v + add })
}

// CompareSwap stores swap in the 8 bytes of b, in host byte order, if they equal compare, and returns what they held.
func CompareSwap(b []byte, compare, swap uint64) (was uint64, ok bool) {
	ok = guarded(func() { was = compareSwap(b, compare, swap) })
	return was, ok
}

func compareSwap(b []byte, compare, swap uint64) uint64 {
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

// Set stores v in the 8 bytes of b, in host byte order, atomically, as CompareSwap does.
func Set(b []byte, v uint64) (ok bool) {
	return guarded(func() {
		for was := Load(b); ; {
			held := compareSwap(b, was, v)
			if held == was {
				return
			}
			was = held
		}
	})
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
