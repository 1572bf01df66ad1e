package fold

import "golang.org/x/sys/cpu"

// The available registers.
var (
	Available = cpu.X86.HasAVX2 && hasVPCLMULQDQ()
	widest    = Available && cpu.X86.HasAVX512F && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VPCLMULQDQ
)

// leastWidest is the length from which registers of 512 bits are used.
const leastWidest = 256

// factors fold 16 bytes over one distance. They have the form that the multiplication of reflected polynomials
// needs, 33 bits, since the product of two registers lacks one shift.
type factors [2]uint64

// A CRC has the factors of one polynomial: from round to round, from register to register, and between the 16 bytes
// of one register.
type CRC struct {
	by256 [3]factors
	by512 [6]factors
}

// New returns the CRC of a polynomial in reflected form, the coefficient of x^31 in bit 0.
func New(poly uint32) *CRC {
	to := func(d int) factors { // for a distance of d bits
		return factors{uint64(Power(poly, d+32)) << 1, uint64(Power(poly, d-32)) << 1}
	}
	return &CRC{
		by256: [...]factors{to(1024), to(256), to(128)},
		by512: [...]factors{to(2048), to(512), to(384), to(256), to(128), {}},
	}
}

// Fold stores in last 16 bytes with the same remainder as the register s followed by p, a multiple of 16 bytes and at
// least 16. If dst is not nil it also stores p there; the two do not overlap.
func (c *CRC) Fold(last *[16]byte, s uint32, dst *byte, p []byte) {
	if widest && len(p) >= leastWidest {
		fold512(last, &c.by512, s, dst, p)
	} else {
		fold256(last, &c.by256, s, dst, p)
	}
}

// fold256 is Fold with registers of 256 bits.
//
//go:noescape
func fold256(last *[16]byte, k *[3]factors, s uint32, dst *byte, p []byte)

// fold512 is Fold for at least 256 bytes.
//
//go:noescape
func fold512(last *[16]byte, k *[6]factors, s uint32, dst *byte, p []byte)

func hasVPCLMULQDQ() bool
