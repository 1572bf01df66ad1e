//go:build !race

package mr

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestLongCopies compares copies by a string instruction with copy, for lengths around the least one, and for memory
// that overlaps at every kind of distance.
func TestLongCopies(t *testing.T) {
	fast := stringsAreFast
	defer func() { stringsAreFast = fast }()
	r := rand.New(rand.NewPCG(1, 2))
	mem := make([]byte, 4*leastString)
	for i := range mem {
		mem[i] = byte(r.Uint32())
	}
	for _, strings := range []bool{false, true} {
		stringsAreFast = func() bool { return strings }
		for _, n := range []int{0, 1, leastString - 1, leastString, leastString + 1, leastString + 4097} {
			for _, at := range [][2]int{{0, 2 * leastString}, {2 * leastString, 0}, {0, 1}, {1, 0}, {7, 7}, {64, 0}, {0, 64},
				{0, leastString}, {leastString, 0}, {leastString + 1, 0}, {leastString - 1, 0}} {
				got, want := bytes.Clone(mem), bytes.Clone(mem)
				copy(want[at[0]:], want[at[1]:][:n])
				if m := dma(got[at[0]:], got[at[1]:][:n]); m != n || !bytes.Equal(got, want) {
					t.Errorf("%v: %d bytes from %d to %d: %d copied, equal: %v", strings, n, at[1], at[0], m,
						bytes.Equal(got, want))
				}
			}
		}
	}
}

// BenchmarkLongCopy compares both copies.
func BenchmarkLongCopy(b *testing.B) {
	for _, n := range []int{leastString, 64 << 10, 1 << 20} {
		dst, src := bytes.Repeat([]byte{1}, n), bytes.Repeat([]byte{2}, n)
		for name, f := range map[string]func(){
			"copy":   func() { copy(dst, src) },
			"string": func() { copyString(&dst[0], &src[0], n) },
		} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					f()
				}
			})
		}
	}
}
