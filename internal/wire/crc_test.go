package wire

import (
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestUpdate compares the CRC with that of the standard library, bytes and lengths of all kinds, wherever they begin.
func TestUpdate(t *testing.T) {
	if !wide {
		t.Log("this processor has no VPCLMULQDQ: hash/crc32 is compared with itself")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 9216+64)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	check := func(s uint32, p []byte) {
		want := ^crc32.Update(^s, crc32.IEEETable, p)
		if got := update(s, p); got != want {
			t.Fatalf("register %#x, %d bytes: %#x, want %#x", s, len(p), got, want)
		}
		if wide && len(p) > 0 {
			if got := updateWide(s, p); got != want {
				t.Fatalf("updateWide: register %#x, %d bytes: %#x, want %#x", s, len(p), got, want)
			}
		}
	}
	for n := 0; n <= 9216; n += 16 {
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

// TestUpdateEveryBit changes each bit of a message, and of the register: the change of the CRC must be what linearity says.
func TestUpdateEveryBit(t *testing.T) {
	const n = 256 + 144
	p := make([]byte, n)
	for bit := range 8 * n {
		p[bit/8] ^= 1 << (bit % 8)
		// The bit is followed by n-1-bit/8 bytes, and by 7-bit%8 bits of its own byte after it, lowest first.
		if got, want := update(0, p), power(8*n-bit+31); got != want {
			t.Fatalf("bit %d of byte %d: %#x, want %#x", bit%8, bit/8, got, want)
		}
		p[bit/8] = 0
	}
	for bit := range 32 {
		if got, want := update(1<<bit, p), power(8*n+31-bit); got != want {
			t.Fatalf("bit %d of the register: %#x, want %#x", bit, got, want)
		}
	}
}

func BenchmarkUpdate(b *testing.B) {
	buf := make([]byte, 4096)
	for _, c := range []struct {
		name string
		f    func(uint32, []byte) uint32
	}{
		{"ours", update},
		{"crc32", func(s uint32, p []byte) uint32 { return ^crc32.Update(^s, crc32.IEEETable, p) }},
	} {
		for _, n := range []int{16, 48, 256, 1024, 4096} {
			b.Run(c.name+"/"+strconv.Itoa(n), func(b *testing.B) {
				b.SetBytes(int64(n))
				s := uint32(1)
				for b.Loop() {
					s = c.f(s, buf[:n])
				}
			})
		}
	}
}
