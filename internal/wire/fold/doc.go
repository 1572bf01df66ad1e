// Package fold computes reflected CRCs of 32 bits with wide registers, also while it copies.
//
// hash/crc32 multiplies 16 bytes at a time, or 64 with one register. Processors since 2019 multiply 32 bytes at
// once (VPCLMULQDQ on registers of 256 bits), later ones 64; with four registers no multiplication waits for the
// previous one. The code can also store each byte at a second address, so that copying a payload and computing its
// CRC is one pass.
//
// Method: data and register are one long polynomial, of which only the remainder modulo P matters. 16 bytes that
// precede 16 others by d bits can be folded into them: their two halves times x^(d+64) and x^d modulo P have the
// same remainder, and are XORed with the others. Four registers fold the data side by side; then they are folded
// into the last of them, that into its last 16 bytes, and these into the rest of the data (all of a short packet).
// The caller computes the remainder of the last 16 bytes as usual.
//
// A register is a polynomial over GF(2) modulo P, with the coefficient of 1 in bit 31 and that of x^31 in bit 0:
// appending a zero bit multiplies it by x. The CRC of hash/crc32 is the complement of the register.
//
// The package has no state, and imports golang.org/x/sys/cpu.
package fold

// Power is x^n modulo a polynomial in reflected form, as a register.
func Power(poly uint32, n int) uint32 {
	v := uint32(1 << 31)
	for range n {
		v = v>>1 ^ -(v&1)&poly
	}
	return v
}
