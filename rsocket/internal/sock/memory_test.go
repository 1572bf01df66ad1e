package sock

import (
	"math/rand/v2"
	"slices"
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

// A buffer of small streams that is freed leaves the others of its size in use, whichever became free first.
func TestFreeingOneOfSeveralSlabs(t *testing.T) {
	const n = largeBytes - blockAlign
	const blocks = slabBytes / n
	var release [3][blocks]func()
	for i := range 3 * blocks {
		_, f, err := allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		release[i/blocks][i%blocks] = f
	}
	for _, slab := range []int{0, 1, 2} { // each has a free block
		release[slab][0]()
	}
	for _, f := range release[1][1:] {
		f()
	}
	var again []func()
	for i := range 2 { // the places in the slabs 0 and 2
		mem, f, err := allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		mem[i], mem[n-1] = 1, 1 // the memory is there
		again = append(again, f)
	}
	for _, f := range slices.Concat(release[0][1:], release[2][1:], again) {
		f()
	}
	slabs.mu.Lock()
	defer slabs.mu.Unlock()
	if len(slabs.of) > 0 {
		t.Errorf("slabs of %d sizes are left", len(slabs.of))
	}
}

// Small streams of one size share a buffer until it is full.
func TestSmallStreamsShareABuffer(t *testing.T) {
	const n = largeBytes - blockAlign
	const blocks = slabBytes / n
	var release []func()
	for i := range blocks + 1 {
		_, f, err := allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		release = append(release, f)
		slabs.mu.Lock()
		list := slabs.of[n]
		slabs.mu.Unlock()
		want := 1 // with a free block
		if i == blocks-1 {
			want = 0
		}
		if len(list) != want {
			t.Errorf("%d blocks: %d buffers with a free one, want %d", i+1, len(list), want)
		}
	}
	for _, f := range release {
		f()
	}
}

// A block that is freed is the next stream's, though its buffer was full before. A stream of the size that is large has
// a buffer of its own, which needs no block.
func TestBlockIsUsedAgain(t *testing.T) {
	const n = largeBytes - blockAlign
	sizes := func(want int) {
		t.Helper()
		slabs.mu.Lock()
		defer slabs.mu.Unlock()
		if len(slabs.of) != want {
			t.Errorf("buffers of %d sizes with a free block, want %d", len(slabs.of), want)
		}
	}
	var blocks [][]byte
	var release []func()
	for range slabBytes / n {
		mem, f, err := allocate(n)
		if err != nil {
			t.Fatal(err)
		}
		blocks, release = append(blocks, mem), append(release, f)
	}
	for _, i := range []int{3, 0} {
		release[i]()
		sizes(1)
		mem, f, err := allocate(n)
		if err != nil || &mem[0] != &blocks[i][0] {
			t.Errorf("another block than the one that was freed, %v", err)
		}
		release[i] = f
	}
	for _, f := range release {
		f()
	}
	_, f, err := allocate(largeBytes)
	if err != nil {
		t.Fatal(err)
	}
	sizes(0)
	f()
	if _, f, err = allocate(largeBytes - 1); err != nil {
		t.Fatal(err)
	}
	sizes(1)
	f()
}
