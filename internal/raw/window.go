package raw

// window is the anti-replay window of a security association (RFC 4303, 3.4.3; RFC 6479). Sequence numbers have 64
// bits.
type window struct {
	top  uint64   // the highest number received
	size uint64   // number of sequence numbers up to top; 0: nothing is refused
	bits []uint64 // ring of words, each of 64 numbers; the length is a power of two
}

// maxAhead bounds how far a packet may be ahead of the highest number.
const maxAhead = 1 << 31

// resize sets the size. All numbers of the new window up to top count as received.
func (w *window) resize(size uint32) {
	w.size, w.bits = uint64(size), nil
	if size == 0 {
		return
	}
	n := 2
	for uint64(n)*64 < w.size+64 {
		n *= 2
	}
	w.bits = make([]uint64, n)
	for i := range w.bits {
		w.bits[i] = ^uint64(0)
	}
	if next := w.top + 1; next&63 != 0 { // the rest of the word of top is free
		*w.word(next) &= 1<<(next&63) - 1
	}
}

func (w *window) word(n uint64) *uint64 { return &w.bits[n/64&uint64(len(w.bits)-1)] }

// fits reports whether a packet with the number n may be accepted.
func (w *window) fits(n uint64) bool {
	switch {
	case w.size == 0:
		return true
	case n > w.top:
		return n-w.top <= maxAhead
	case w.top-n >= w.size:
		return false
	}
	return *w.word(n)>>(n&63)&1 == 0
}

// take records the number n of an authenticated packet, which fits.
func (w *window) take(n uint64) {
	if n > w.top {
		if w.bits != nil {
			skipped := min(n/64-w.top/64, uint64(len(w.bits)))
			for i := range skipped {
				*w.word(n - i*64) = 0
			}
		}
		w.top = n
	}
	if w.bits != nil {
		*w.word(n) |= 1 << (n & 63)
	}
}

// full returns the 64-bit number of a packet that carries the low 32 bits: the one nearest to the window (RFC 4303,
// A2). ok is false if there is none.
func (w *window) full(low uint32) (n uint64, ok bool) {
	size := w.size
	if size == 0 {
		size = maxAhead
	}
	high, top := w.top>>32, uint32(w.top)
	bottom := top - uint32(size) + 1
	switch {
	case uint64(top) >= size-1: // the window is in one subspace
		if low < bottom {
			high++
		}
	case low >= bottom:
		if high == 0 {
			return 0, false
		}
		high--
	}
	if high>>32 != 0 {
		return 0, false
	}
	return high<<32 | uint64(low), true
}
