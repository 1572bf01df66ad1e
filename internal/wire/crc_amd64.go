package wire

import "golang.org/x/sys/cpu"

// hash/crc32 multiplies 16 bytes at a time. Processors of the years since 2019 can do two such multiplications at once (VPCLMULQDQ on
// registers of 256 bits), which halves the time for a packet of 4096 bytes.
//
// How: data and register are one long polynomial, of which only the remainder modulo P counts. 16 bytes that stand d bits before
// 16 others can be moved there: their two halves times x^(d+64) and x^d modulo P have the same remainder, and are XORed with what stands there. Four
// registers of 32 bytes walk over the data, moving 1024 bits at each step; then they are moved into the last of them,
// that into its second half, and this over what is left (all of a short packet). The remainder of the last 16 bytes takes the ordinary way.

// updateWide is quicker than hash/crc32 for lengths below mostNarrow, where that uses tables, and from leastWide on.
const (
	mostNarrow = 64
	leastWide  = 256
)

// wide tells whether the processor has what updateWide needs.
var wide = cpu.X86.HasAVX2 && hasVPCLMULQDQ()

// folding holds, for each distance in bits, the two factors in the form that the multiplication of reflected polynomials
// wants: 33 bits, since the product of two registers lacks one shift.
var folding = [3][2]uint64{factors(1024), factors(256), factors(128)}

func factors(d int) [2]uint64 {
	return [2]uint64{uint64(power(d+32)) << 1, uint64(power(d-32)) << 1}
}

// updateWide is update for at least 16 bytes.
func updateWide(s uint32, p []byte) uint32 {
	var last [16]byte
	fold(&last, &folding, s, p)
	return advance(0, last[:])
}

// fold stores 16 bytes that have the same remainder as the register s followed by p.
//
//go:noescape
func fold(last *[16]byte, k *[3][2]uint64, s uint32, p []byte)

func hasVPCLMULQDQ() bool
