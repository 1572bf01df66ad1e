package fold

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

var polynomials = []uint32{crc32.IEEE, crc32.Castagnoli}

// TestFold compares remainders with those of the standard library, for bytes, lengths and alignments of all kinds, with
// and without a copy.
func TestFold(t *testing.T) {
	if !Available {
		t.Skip("this processor has no VPCLMULQDQ")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 9216+64)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	dst := make([]byte, len(buf)+1)
	for _, poly := range polynomials {
		c, table := New(poly), crc32.MakeTable(poly)
		check := func(s uint32, p []byte) {
			t.Helper()
			want := ^crc32.Update(^s, table, p)
			for _, to := range []*byte{nil, &dst[1]} {
				var last [16]byte
				clear(dst)
				c.Fold(&last, s, to, p)
				if got := ^crc32.Update(^uint32(0), table, last[:]); got != want {
					t.Fatalf("polynomial %#x, register %#x, %d bytes: %#x, want %#x", poly, s, len(p), got, want)
				}
			}
			if !bytes.Equal(dst[1:1+len(p)], p) || dst[0] != 0 || dst[1+len(p)] != 0 {
				t.Fatalf("%d bytes are not copied as they are, and only they", len(p))
			}
		}
		for n := 16; n <= 9216; n += 16 {
			check(rng.Uint32(), buf[n&63:][:n])
		}
		for off := range 64 {
			check(rng.Uint32(), buf[off:][:4096])
		}
		for _, s := range []uint32{0, 1, 1 << 31, ^uint32(0)} {
			check(s, buf[:256])
			check(s, make([]byte, 4096))
		}
	}
}

// TestPower appends zero bits one at a time to the register of the polynomial 1.
func TestPower(t *testing.T) {
	for _, poly := range polynomials {
		table := crc32.MakeTable(poly)
		for n := 0; n < 1024; n += 8 {
			if got, want := Power(poly, n), ^crc32.Update(^uint32(1<<31), table, make([]byte, n/8)); got != want {
				t.Fatalf("polynomial %#x: x^%d is %#x, want %#x", poly, n, got, want)
			}
		}
	}
}
