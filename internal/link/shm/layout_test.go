package shm

import "testing"

// TestShapesFitTheAddressSpace checks that the sizes of ring sets are right, on processors of 32 bits too: the peer
// chooses the number of its ports and the size of the rings.
func TestShapesFitTheAddressSpace(t *testing.T) {
	for n := 1; n <= maxPorts; n++ {
		for m := 1; m <= maxPorts; m++ {
			for size := minRing; size <= maxRing; size *= 2 {
				s := shape{n: n, m: m, ring: size}
				if s.check() != nil {
					continue
				}
				want := ringsAt + int64(n)*int64(m)*int64(size)
				if last := s.ringAt(n-1, m-1) + size; int64(s.ringsSize()) != want || int64(last) != want {
					t.Fatalf("%+v: %d bytes, the last ring ends at %d: must be %d", s, s.ringsSize(), last, want)
				}
			}
		}
	}
}
