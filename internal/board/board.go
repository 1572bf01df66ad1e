// Package board is memory by which a process tells another one which connection requests it wants. It imports the
// standard library only, and maps no memory.
package board

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// A Board is memory that a process which shares an address has in common with the process that reads QP 1 there. The
// one that reads drops requests for the other one by it, before it passes them on: see link.Screener. The owner of the
// board writes it, and nobody else. It is safe for concurrent use.
type Board struct {
	floods *[Kinds]atomic.Uint64
	known  *[Sources / 64]atomic.Uint64
}

// A Screen says which requests for another process are unwanted. It is safe for concurrent use.
type Screen interface {
	Drop(mad []byte) bool
}

// Kind is a kind of request: for a connection, or a look-up of a service.
type Kind int

// The kinds.
const (
	Connect Kind = iota
	Lookup
	Kinds
)

// Sources is the number of hashes of sources on a board.
const Sources = 1 << 14

// Len is the length of the memory of a board, in bytes.
const Len = 8 * (int(Kinds) + Sources/64)

// New makes a board of memory, aligned to 8 bytes. The memory must exist as long as the Board, which the garbage
// collector tells (runtime.AddCleanup).
func New(mem []byte) *Board {
	_ = mem[Len-1]
	const floods = 8 * int(Kinds)
	return &Board{
		floods: (*[Kinds]atomic.Uint64)(unsafe.Pointer(&mem[0])),
		known:  (*[Sources / 64]atomic.Uint64)(unsafe.Pointer(&mem[floods])),
	}
}

// Flood notes that the owner has just dropped a request, because it gets too many.
func (b *Board) Flood(k Kind) {
	b.floods[k].Add(1)
	runtime.KeepAlive(b)
}

// Floods returns how often Flood was called.
func (b *Board) Floods(k Kind) uint64 {
	defer runtime.KeepAlive(b)
	return b.floods[k].Load()
}

// Know sets whether the sources with a hash, below Sources, have answered the owner.
func (b *Board) Know(hash uint32, known bool) {
	if bit := uint64(1) << (hash % 64); known {
		b.known[hash/64].Or(bit)
	} else {
		b.known[hash/64].And(^bit)
	}
	runtime.KeepAlive(b)
}

// Knows reports whether sources with a hash have answered the owner.
func (b *Board) Knows(hash uint32) bool {
	defer runtime.KeepAlive(b)
	return b.known[hash/64].Load()>>(hash%64)&1 != 0
}
