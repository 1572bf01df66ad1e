package wire

import "golang.org/x/sys/cpu"

// hash/crc32 multiplies 16 bytes at a time, or 64 with one register. Processors since 2019 multiply 32 bytes at
// once (VPCLMULQDQ on registers of 256 bits), later ones 64; with four registers no multiplication waits for the
// previous one. The code can also store each byte at a second address, so that copying a payload and computing its
// CRC is one pass.
//
// Method: data and register are one long polynomial, of which only the remainder modulo P matters. 16 bytes that
// precede 16 others by d bits can be folded into them: their two halves times x^(d+64) and x^d modulo P have the
// same remainder, and are XORed with the others. Four registers fold the data side by side; then they are folded
// into the last of them, that into its last 16 bytes, and these into the rest of the data (all of a short packet).
// The remainder of the last 16 bytes is computed as usual.

// passWide is faster than hash/crc32 for lengths below mostNarrow, where hash/crc32 uses tables, and from leastWide
// on.
const (
	mostNarrow = 64
	leastWide  = 256
)

// The available registers.
var (
	wide   = cpu.X86.HasAVX2 && hasVPCLMULQDQ()
	widest = wide && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ
)

// factors fold 16 bytes over one distance. They have the form that the multiplication of reflected polynomials
// needs, 33 bits, since the product of two registers lacks one shift.
type factors [2]uint64

// to returns the factors for a distance of d bits.
func to(d int) factors {
	return factors{uint64(power(d+32)) << 1, uint64(power(d-32)) << 1}
}

// The distances: from round to round, from register to register, and between the 16 bytes of one register.
var (
	by256 = [...]factors{to(1024), to(256), to(128)}
	by512 = [...]factors{to(2048), to(512), to(384), to(256), to(128), {}}
)

// passWide is update for at least 16 bytes. If dst is not nil it also stores p there; the two do not overlap.
func passWide(s uint32, dst *byte, p []byte) uint32 {
	var last [16]byte
	if widest && len(p) >= leastWide {
		fold512(&last, &by512, s, dst, p)
	} else {
		fold256(&last, &by256, s, dst, p)
	}
	return advance(0, last[:])
}

// fold256 stores in last 16 bytes with the same remainder as the register s followed by p.
//
//go:noescape
func fold256(last *[16]byte, k *[3]factors, s uint32, dst *byte, p []byte)

// fold512 is fold256 for at least 256 bytes.
//
//go:noescape
func fold512(last *[16]byte, k *[6]factors, s uint32, dst *byte, p []byte)

func hasVPCLMULQDQ() bool
