package psn

import (
	"math/rand/v2"
	"testing"
)

// edges are PSNs around every boundary of the arithmetic.
var edges = []uint32{0, 1, 2, 1<<23 - 2, 1<<23 - 1, 1 << 23, 1<<23 + 1, Mask - 2, Mask - 1, Mask}

// distances are results of Diff, including both ends of its range.
var distances = []int{0, 1, 2, 1000, 1<<23 - 2, 1<<23 - 1, -1, -2, -1000, -(1 << 23) + 1, -(1 << 23)}

func TestWrapAround(t *testing.T) {
	for _, c := range []struct{ got, want uint32 }{
		{Next(0), 1},
		{Next(Mask - 1), Mask},
		{Next(Mask), 0},
		{Add(Mask, 1), 0},
		{Add(Mask, 2), 1},
		{Add(0, -1), Mask},
		{Add(5, -10), Mask - 4},
		{Add(Mask, 1<<24), Mask},
		{Add(7, -(1 << 24)), 7},
		{Add(Mask, 1<<23), 1<<23 - 1},
		{Add(3, 0), 3},
	} {
		if c.got != c.want {
			t.Errorf("got %#06x, want %#06x", c.got, c.want)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		a, b uint32
		want int
	}{
		{0, 0, 0}, {Mask, Mask, 0},
		{1, 0, 1}, {0, 1, -1},
		{0, Mask, 1}, {Mask, 0, -1},
		{2, Mask - 1, 4}, {Mask - 1, 2, -4},
		{1<<23 - 1, 0, 1<<23 - 1},  // the farthest ahead
		{1 << 23, 0, -(1 << 23)},   // one more is behind
		{0, 1 << 23, -(1 << 23)},   // from both sides
		{0, 1<<23 + 1, 1<<23 - 1},  // across the wrap
		{1<<23 + 5, 5, -(1 << 23)}, // anywhere on the circle
	} {
		if got := Diff(c.a, c.b); got != c.want {
			t.Errorf("Diff(%#06x, %#06x) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestLess(t *testing.T) {
	for _, c := range []struct {
		a, b uint32
		want bool
	}{
		{0, 1, true}, {1, 0, false}, {1, 1, false},
		{Mask, 0, true}, {0, Mask, false},
		{0, 1<<23 - 1, true}, {1<<23 - 1, 0, false},
	} {
		if got := Less(c.a, c.b); got != c.want {
			t.Errorf("Less(%#06x, %#06x) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}

// each calls check with the edges and many random PSNs.
func each(check func(p uint32)) {
	for _, p := range edges {
		check(p)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10000 {
		check(r.Uint32() & Mask)
	}
}

// TestV_QPQ_24Bit_Properties proves that the arithmetic is circular at every PSN: rq_psn and sq_psn are 24-bit
// numbers (V-QPQ).
func TestV_QPQ_24Bit_Properties(t *testing.T) {
	each(func(p uint32) {
		if Next(p) != Add(p, 1) || Add(Next(p), -1) != p || !Less(p, Next(p)) {
			t.Fatalf("%#06x and its successor %#06x", p, Next(p))
		}
		for _, d := range distances {
			q := Add(p, d)
			switch {
			case q > Mask:
				t.Fatalf("Add(%#06x, %d) = %#x has more than 24 bits", p, d, q)
			case Add(q, -d) != p:
				t.Fatalf("Add(%#06x, %d) back is %#06x", p, d, Add(q, -d))
			case Diff(q, p) != d:
				t.Fatalf("Diff(%#06x, %#06x) = %d, want %d", q, p, Diff(q, p), d)
			case Less(q, p) != (d < 0):
				t.Fatalf("Less(%#06x, %#06x) = %v with distance %d", q, p, Less(q, p), d)
			}
		}
	})
}

// TestOrder checks that Less orders the PSNs of the largest window, 2^23, at every position of the circle.
func TestOrder(t *testing.T) {
	each(func(first uint32) {
		for _, w := range []int{1, 128, 1<<23 - 1} {
			last := Add(first, w)
			if !Less(first, last) || Less(last, first) {
				t.Fatalf("%#06x and %#06x, %d apart, are out of order", first, last, w)
			}
		}
	})
}
