package raw

import (
	"math/rand/v2"
	"testing"
)

// model is a window as a set.
type model struct {
	top, size uint64
	seen      map[uint64]bool
}

func (m *model) fits(n uint64) bool {
	if n > m.top {
		return n-m.top <= 1<<31
	}
	return m.top-n < m.size && !m.seen[n]
}

func TestReplayWindow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []uint32{1, 2, 31, 63, 64, 65, 100, 128, 1000, 4096} {
		for _, start := range []uint64{0, 1, 63, 64, 1<<32 - 40, 1 << 40} {
			w := window{top: start}
			w.resize(size)
			m := model{top: start, size: uint64(size), seen: map[uint64]bool{}}
			for n := uint64(0); n < uint64(size)+64 && n <= start; n++ {
				m.seen[start-n] = true // what the window begins with counts as received
			}
			for i := range 3000 {
				n := m.top + uint64(r.IntN(40)) - uint64(r.IntN(2*int(size)+40))
				switch {
				case i%50 == 0:
					n = m.top + uint64(r.IntN(3*int(size)+200))
				case i%333 == 0:
					n = m.top + 1<<31 + uint64(r.IntN(2))
				case n > m.top+1<<40: // below 0
					n = 0
				}
				if got, want := w.fits(n), m.fits(n); got != want {
					t.Fatalf("size %d, start %d, top %d: %d fits: %v, want %v", size, start, m.top, n, got, want)
				}
				if m.fits(n) && r.IntN(4) > 0 {
					w.take(n)
					m.seen[n], m.top = true, max(m.top, n)
				}
			}
		}
	}
}

// TestHighHalfOfASequenceNumber: of the numbers with the same low half, the one that is nearest to the window, as in
// RFC 4303, A2.
func TestHighHalfOfASequenceNumber(t *testing.T) {
	for _, c := range []struct {
		top  uint64
		size uint32
		low  uint32
		want uint64
		ok   bool
	}{
		{0, 64, 1, 1, true},
		{100, 64, 37, 37, true},                  // the bottom
		{100, 64, 36, 1<<32 + 36, true},          // below: of the next subspace
		{5<<32 | 100, 64, 50, 5<<32 | 50, true},  // the window in one subspace
		{5<<32 | 100, 64, 20, 6<<32 | 20, true},  // wrapped
		{5<<32 | 10, 64, 10, 5<<32 | 10, true},   // the window in two subspaces
		{5<<32 | 10, 64, 200, 5<<32 | 200, true}, // ahead
		{5<<32 | 10, 64, 1<<32 - 20, 4<<32 | (1<<32 - 20), true},
		{10, 64, 1<<32 - 20, 0, false}, // there was none before 0
		{1<<64 - 1, 64, 0, 0, false},   // nor one after the last
		{3<<32 | 7, 0, 8, 3<<32 | 8, true},
		{3<<32 | 0xfffffff0, 0, 8, 4<<32 | 8, true},
	} {
		w := window{top: c.top}
		w.resize(c.size)
		if got, ok := w.full(c.low); ok != c.ok || ok && got != c.want {
			t.Errorf("window of %d up to %#x: %#x has %#x, %v; want %#x, %v", c.size, c.top, c.low, got, ok, c.want, c.ok)
		}
	}
}

func TestWindowWithoutProtection(t *testing.T) {
	w := window{top: 5}
	w.resize(0)
	for _, n := range []uint64{5, 1, 1 << 40, 7} {
		if !w.fits(n) {
			t.Errorf("%d does not fit", n)
		}
		w.take(n)
	}
	if w.top != 1<<40 {
		t.Error(w.top)
	}
}
