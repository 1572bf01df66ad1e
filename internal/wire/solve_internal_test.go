package wire

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// The carry-less product is the sum, without carries, of the shifted first factor.
func TestCarryLessProduct(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(a, b uint32) {
		var want uint64
		for left := b; left != 0; left &= left - 1 {
			want ^= uint64(a) << bits.TrailingZeros32(left)
		}
		if got := clmul(a, b); got != want {
			t.Fatalf("%#x by %#x: %#x, want %#x", a, b, got, want)
		}
	}
	for i := range 32 {
		for j := range 32 {
			check(1<<i, 1<<j)
		}
		check(1<<i, 0xFFFFFFFF)
	}
	check(0xFFFFFFFF, 0xFFFFFFFF)
	for range 1000 {
		check(rnd.Uint32(), rnd.Uint32())
	}
}
