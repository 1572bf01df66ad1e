package secret

import (
	"bytes"
	"slices"
	"testing"
)

func TestSequenceHasEachNumberOnce(t *testing.T) {
	for _, n := range []uint32{1, 2, 3, 16, 100, 1 << 12, 5000} {
		s := NewSequence(n, nil)
		last := make(map[uint32]int)
		for i := range int(3 * n) {
			v := s.Next()
			if v >= n {
				t.Fatalf("%d of a sequence of %d", v, n)
			}
			if was, again := last[v]; again && i-was != int(n) {
				t.Fatalf("n=%d: %d came again after %d draws", n, v, i-was)
			}
			last[v] = i
		}
		if len(last) != int(n) {
			t.Errorf("n=%d: %d numbers came", n, len(last))
		}
	}
}

// TestSequenceOfASeed checks the full range of 32 bits, and that a seed determines the sequence on every system.
func TestSequenceOfASeed(t *testing.T) {
	draw := func(n uint32) (list []uint32) {
		s := NewSequence(n, bytes.NewReader([]byte("twenty bytes of seed")))
		for range 4 {
			list = append(list, s.Next())
		}
		return list
	}
	for _, n := range []uint32{1 << 24, 1<<32 - 1} {
		if a, b := draw(n), draw(n); !slices.Equal(a, b) {
			t.Errorf("%v and %v", a, b)
		}
	}
}

// TestSequencesDiffer checks that successive numbers are not close, and that each sequence has its own order.
func TestSequencesDiffer(t *testing.T) {
	a, b := NewSequence(1<<24, nil), NewSequence(1<<24, nil)
	near, same := 0, 0
	last := a.Next()
	for range 10000 {
		v := a.Next()
		if d := int(v) - int(last); d > -256 && d < 256 {
			near++
		}
		if v == b.Next() {
			same++
		}
		last = v
	}
	if near > 10 || same > 5 { // 0.3 and 0.0006 are expected
		t.Errorf("%d of 10000 are near the one before, %d equal those of another sequence", near, same)
	}
}

func TestPSNsHave24Bits(t *testing.T) {
	var or uint32
	seen := map[uint32]bool{}
	for range 200 {
		p := PSN()
		or |= p
		seen[p] = true
	}
	if or != 0xffffff || len(seen) < 190 {
		t.Errorf("bits %#x, %d different ones of 200", or, len(seen))
	}
}

func BenchmarkSequence(b *testing.B) {
	s := NewSequence(1<<24, nil)
	for b.Loop() {
		s.Next()
	}
}
