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

// slab is a buffer that is divided into blocks of one size.
type slab struct {
	mem  []byte
	size int
	free []int // blocks
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
	size := (n + blockAlign - 1) &^ (blockAlign - 1)
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	list := slabs.of[size]
	if len(list) == 0 {
		s := &slab{size: size}
		if s.mem, err = verbs.AllocPrivateBuffer(slabBytes); err != nil {
			return nil, nil, err
		}
		for i := range slabBytes / size {
			s.free = append(s.free, i)
		}
		list = append(list, s)
	}
	s := list[len(list)-1]
	block := s.free[len(s.free)-1]
	if s.free = s.free[:len(s.free)-1]; len(s.free) == 0 {
		list = list[:len(list)-1]
	}
	slabs.of[size] = list
	mem = s.mem[block*size:][:n:n]
	return mem, func() { s.giveBack(block) }, nil
}

// giveBack frees a block, and the slab with its last one.
func (s *slab) giveBack(block int) {
	clear(s.mem[block*s.size:][:s.size]) // the next stream must not see it
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	s.free = append(s.free, block)
	list := slabs.of[s.size]
	switch len(s.free) {
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
