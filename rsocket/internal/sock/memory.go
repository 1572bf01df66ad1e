package sock

import (
	"sync"

	"github.com/verbena-rdma/verbena/verbs"
)

// Memory of streams. Large buffers come from verbs.AllocBuffer, each with a file descriptor, so that long messages
// go to a peer on this host by reference. Small streams share buffers, so that 10,000 of them do not need 10,000
// mappings; these are private, because a peer must not read data of other streams.
const (
	slabBytes  = 1 << 20
	largeBytes = 128 << 10
	blockAlign = 4096
)

// slab is a buffer that is divided into blocks of one size. Streams get those that others have given back before those
// from fresh on, which nobody has had: the pages of these do not exist yet.
type slab struct {
	mem   []byte
	size  int
	given []int // blocks that were given back, with what the streams have left in them
	fresh int
}

// free returns the number of free blocks.
func (s *slab) free() int { return slabBytes/s.size - s.fresh + len(s.given) }

// take returns a free block, of which there is one. used reports whether another stream has had it.
func (s *slab) take() (block int, used bool) {
	last := len(s.given) - 1
	if last < 0 {
		s.fresh++
		return s.fresh - 1, false
	}
	block, s.given = s.given[last], s.given[:last]
	return block, true
}

// slabs are the slabs with a free block, by block size.
var slabs = struct {
	mu sync.Mutex
	of map[int][]*slab
}{of: map[int][]*slab{}}

// allocate returns n zero bytes, and a function that frees them once no region is registered over them.
func allocate(n int) (mem []byte, release func(), err error) {
	if n >= largeBytes {
		mem, err = verbs.AllocBuffer(n)
		return mem, func() { _ = verbs.FreeBuffer(mem) }, err
	}
	s, block, used, err := takeBlock((n + blockAlign - 1) &^ (blockAlign - 1))
	if err != nil {
		return nil, nil, err
	}
	mem = s.mem[block*s.size:][:n:n]
	if used {
		clear(mem) // the stream must not see what another one has left
	}
	return mem, func() { s.giveBack(block) }, nil
}

// takeBlock takes a block of a size from a slab that has one, or from a new one.
func takeBlock(size int) (s *slab, block int, used bool, err error) {
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	list := slabs.of[size]
	if len(list) == 0 {
		s = &slab{size: size}
		if s.mem, err = verbs.AllocPrivateBuffer(slabBytes); err != nil {
			return nil, 0, false, err
		}
		list = append(list, s)
	}
	s = list[len(list)-1]
	block, used = s.take()
	if s.free() == 0 {
		list = list[:len(list)-1]
	}
	slabs.of[size] = list
	return s, block, used, nil
}

// giveBack frees a block, and the slab with its last one.
func (s *slab) giveBack(block int) {
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	s.given = append(s.given, block)
	list := slabs.of[s.size]
	switch s.free() {
	case slabBytes / s.size:
		for i, other := range list {
			if other == s {
				list = append(list[:i], list[i+1:]...)
				break
			}
		}
		_ = verbs.FreeBuffer(s.mem)
	case 1:
		list = append(list, s)
	}
	if slabs.of[s.size] = list; len(list) == 0 {
		delete(slabs.of, s.size)
	}
}
