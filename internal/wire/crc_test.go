package wire

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/verbena-rdma/verbena/internal/wire/fold"
)

// TestUpdate compares the CRC with that of the standard library, for bytes, lengths and alignments of all kinds.
func TestUpdate(t *testing.T) {
	if !wide {
		t.Log("this processor has no VPCLMULQDQ: hash/crc32 is compared with itself")
	}
	rng := rand.New(rand.NewPCG(1, 2))
	buf := make([]byte, 9216+64)
	for i := range buf {
		buf[i] = byte(rng.Uint32())
	}
	dst := make([]byte, len(buf)+1)
	check := func(s uint32, p []byte) {
		want := ^crc32.Update(^s, crc32.IEEETable, p)
		if got := update(s, p); got != want {
			t.Fatalf("register %#x, %d bytes: %#x, want %#x", s, len(p), got, want)
		}
		if !wide || len(p) == 0 {
			return
		}
		if got := passWide(s, nil, p); got != want {
			t.Fatalf("passWide: register %#x, %d bytes: %#x, want %#x", s, len(p), got, want)
		}
		clear(dst)
		if got := passWide(s, &dst[1], p); got != want {
			t.Fatalf("passWide: register %#x, %d bytes: %#x, want %#x", s, len(p), got, want)
		}
		if !bytes.Equal(dst[1:1+len(p)], p) || dst[0] != 0 || dst[1+len(p)] != 0 {
			t.Fatalf("passWide: %d bytes are not copied as they are, and only they", len(p))
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

// TestUpdateEveryBit changes each bit of a message and of the register: the CRC must change as linearity requires.
func TestUpdateEveryBit(t *testing.T) {
	const n = 256 + 144
	p := make([]byte, n)
	for bit := range 8 * n {
		p[bit/8] ^= 1 << (bit % 8)
		// n-1-bit/8 bytes follow the bit, and 7-bit%8 bits of its own byte, lowest first.
		if got, want := update(0, p), fold.Power(poly, 8*n-bit+31); got != want {
			t.Fatalf("bit %d of byte %d: %#x, want %#x", bit%8, bit/8, got, want)
		}
		p[bit/8] = 0
	}
	for bit := range 32 {
		if got, want := update(1<<bit, p), fold.Power(poly, 8*n+31-bit); got != want {
			t.Fatalf("bit %d of the register: %#x, want %#x", bit, got, want)
		}
	}
}

// TestCopySum varies the position at which a packet is split into headers and summed payload.
func TestCopySum(t *testing.T) {
	if !SumsWhileCopying {
		t.Skip("this processor cannot")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	f := Flow{crc: rng.Uint32(), v4: true}
	for n := LeastSum; n <= MaxPayload; n += 16 {
		for _, head := range []int{BTHLen, BTHLen + 4, BTHLen + 16, BTHLen + 33} {
			src := make([]byte, n)
			for i := range src {
				src[i] = byte(rng.Uint32())
			}
			b := make([]byte, head+n+ICRCLen)
			b[0], b[4], b[head-1] = byte(n), 7, 9
			sum := CopySum(0, b[head:], src)
			want := f.ICRC(b[:head+n], 5)
			if f.SealSum(b, 5, sum, n); le.Uint32(b[head+n:]) != want {
				t.Fatalf("%d bytes behind %d: %#x, want %#x", n, head, b[head+n:], want)
			}
			if f.SealSum(b, 5, 0, 0); le.Uint32(b[head+n:]) != want {
				t.Fatalf("nothing summed of %d bytes: %#x, want %#x", head+n, b[head+n:], want)
			}
		}
	}
}

// TestSealCopy seals packets with payloads of every length.
func TestSealCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	f := Flow{crc: rng.Uint32()}
	const head = BTHLen + AETHLen
	src := make([]byte, MaxPayload)
	for i := range src {
		src[i] = byte(rng.Uint32())
	}
	for n := range MaxPayload + 1 {
		got := bytes.Repeat([]byte{0xA5}, head+(n+3)&^3+ICRCLen)
		want := append(got[:head:head], src[:n]...)
		want = append(want, make([]byte, len(got)-len(want))...)
		f.Seal(want, 3)
		if f.SealCopy(got, 3, head, src[:n]); !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: it differs from a copy that is sealed", n)
		}
	}
}

// TestZeros compares zeros with an update by as many zero bytes.
func TestZeros(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range MaxPayload + 4 {
		if s := rng.Uint32(); zeros(s, n) != advance(s, make([]byte, n)) {
			t.Fatalf("%d zeros after %#x: %#x, want %#x", n, s, zeros(s, n), advance(s, make([]byte, n)))
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

// BenchmarkTrain copies 15 payloads of 4096 bytes into packets and seals them.
func BenchmarkTrain(b *testing.B) {
	const head, n, all = BTHLen, 4096, BTHLen + 4096 + ICRCLen
	src, dst := make([]byte, 1<<20), make([]byte, 15*all)
	var f Flow
	each := func(at int, one func(pkt, p []byte)) {
		for k := range 15 {
			one(dst[k*all:][:all], src[at+k*n:][:n])
		}
	}
	for _, c := range []struct {
		name string
		turn func(at int)
	}{
		{"two passes", func(at int) {
			each(at, func(pkt, p []byte) { copy(pkt[head:], p) })
			each(at, func(pkt, _ []byte) { f.Seal(pkt, 0) })
		}},
		{"one pass", func(at int) {
			each(at, func(pkt, p []byte) { f.SealSum(pkt, 0, CopySum(0, pkt[head:], p), n) })
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			if !SumsWhileCopying {
				b.Skip("this processor cannot")
			}
			b.SetBytes(15 * n)
			for at := 0; b.Loop(); at = (at + 1<<16) & (1<<20 - 1) {
				c.turn(at)
			}
		})
	}
}
