package wire

import "math/bits"

// maxSolve is the length of the longest packet, BTH to pad, that SolveID accepts.
const maxSolve = 9216

// unknownLen is the number of bytes from the IPv4 identification to the end of the UDP header.
const unknownLen = ipv4Len + udpLen - 4

// SolveID finds the IPv4 identification of a packet from its ICRC. diff is the ICRC computed with identification 0,
// XOR the received one; n is the length of the packet from BTH to pad, a multiple of 4, at most 9216. ok is false
// if no identification, with DF or without, explains the ICRC: then the packet is damaged. A damaged packet passes
// with a probability of 1 in 32768.
//
// Method: a flipped bit of the message flips bits of the CRC that depend only on its position, not on the other
// bits. Let w be the flipped bits of the identification and of the two bytes after it (flags and fragment offset),
// as XORed into the register, the first byte lowest. From there 24+n bytes follow until the CRC is complete, and
// each multiplies the register by x^8, so
//
//	diff = w * x^(8(24+n)) mod P
//
// x has an inverse modulo P, because P has the term 1. Multiplying by the inverse's power, from a table, runs the
// CRC backwards:
//
//	w = diff * x^(-8(24+n)) mod P
//
// Every diff has exactly one such w of 32 bits. Its lower half is the identification. The upper half must be 0, or
// DF alone if the sender does not set it.
func SolveID(diff uint32, n int) (id uint16, ok bool) {
	if uint(n) > maxSolve || n&3 != 0 {
		return 0, false
	}
	w := mulmod(diff, backward[n>>2])
	return bits.ReverseBytes16(uint16(w)), w>>16&^flagDF == 0
}

// backward[k] is x^(-8(unknownLen+4k)) mod P.
var backward = func() (t [maxSolve/4 + 1]uint32) {
	back := func(bits int) uint32 { // x^-bits
		v := uint32(1 << 31) // the polynomial 1
		for range bits {
			v = divX(v)
		}
		return v
	}
	t[0] = back(8 * unknownLen)
	word := back(32)
	for k := range t[1:] {
		t[k+1] = mulmod(t[k], word)
	}
	return t
}()

// divX divides by x modulo P: it adds P if the term 1 is present, so that x divides the sum, then shifts.
func divX(v uint32) uint32 {
	if v&(1<<31) != 0 {
		return (v^poly)<<1 | 1
	}
	return v << 1
}

// mulmod multiplies two polynomials modulo P.
func mulmod(a, b uint32) uint32 {
	// In the product of 32 by 32 coefficients bit 62 is the term 1; one shift makes it bit 63. The lower half is
	// then a multiple of x^32 to be reduced.
	p := clmul(a, b) << 1
	return step4(uint32(p)) ^ uint32(p>>32)
}

// clmul returns the carry-less product of a and b. Integer multiplication computes it for operands that have only
// every fourth bit: at most 8 ones meet in a column, and the carry of 8 stays within the three empty columns.
func clmul(a, b uint32) uint64 {
	const m = 0x1111_1111_1111_1111
	a0, a1, a2, a3 := uint64(a)&m, uint64(a)&(m<<1), uint64(a)&(m<<2), uint64(a)&(m<<3)
	b0, b1, b2, b3 := uint64(b)&m, uint64(b)&(m<<1), uint64(b)&(m<<2), uint64(b)&(m<<3)
	return (a0*b0^a1*b3^a2*b2^a3*b1)&m |
		(a0*b1^a1*b0^a2*b3^a3*b2)&(m<<1) |
		(a0*b2^a1*b1^a2*b0^a3*b3)&(m<<2) |
		(a0*b3^a1*b2^a2*b1^a3*b0)&(m<<3)
}
