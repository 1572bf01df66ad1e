package sock

import (
	"math/rand/v2"
	"testing"
)

// Blocks do not overlap, are zero, and leave nothing behind.
func TestMemoryOfSmallStreams(t *testing.T) {
	type block struct {
		mem     []byte
		release func()
		mark    byte
	}
	var held []block
	r := rand.New(rand.NewPCG(1, 1))
	drop := func(i int) {
		b := held[i]
		for _, v := range b.mem {
			if v != b.mark {
				t.Fatalf("another stream has written %d over %d", v, b.mark)
			}
		}
		b.release()
		held = append(held[:i], held[i+1:]...)
	}
	for i := range 600 {
		n := []int{1, 8288, 20000, largeBytes - 1, largeBytes}[r.IntN(5)]
		mem, release, err := allocate(n)
		if err != nil || len(mem) != n {
			t.Fatal(err)
		}
		for k, v := range mem {
			if v != 0 {
				t.Fatalf("byte %d of %d is %d", k, n, v)
			}
			mem[k] = byte(i)
		}
		held = append(held, block{mem, release, byte(i)})
		for len(held) > 100 || len(held) > 0 && r.IntN(3) == 0 {
			drop(r.IntN(len(held)))
		}
	}
	for len(held) > 0 {
		drop(0)
	}
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	if len(slabs.of) > 0 {
		t.Errorf("%d slabs are left", len(slabs.of))
	}
}
