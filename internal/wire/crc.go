package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// A register is that of a reflected CRC: a polynomial over GF(2) modulo the CRC's P, with the coefficient of 1 in
// bit 31 and that of x^31 in bit 0. Appending a zero bit multiplies it by x.
const poly = 0xEDB88320

var le = binary.LittleEndian

// update puts p, a multiple of 16 bytes, into the register s. Packets of full size take most of their time here.
func update(s uint32, p []byte) uint32 {
	switch {
	case len(p) == 0:
		return s
	case wide && (len(p) < mostNarrow || len(p) >= leastWide):
		return passWide(s, nil, p)
	}
	return ^crc32.Update(^s, crc32.IEEETable, p)
}

// slicing[k][b] is b, the lowest byte of a register, times x^(8(k+1)).
var slicing = func() (t [4][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < 4; k++ {
		for b, v := range t[k-1] {
			t[k][b] = v>>8 ^ t[0][v&0xFF]
		}
	}
	return t
}()

// step4 multiplies a register by x^32, which appends four zero bytes. To append four bytes of data, XOR them with
// the register first, the first byte in the lowest position.
func step4(s uint32) uint32 {
	return slicing[3][s&0xFF] ^ slicing[2][s>>8&0xFF] ^ slicing[1][s>>16&0xFF] ^ slicing[0][s>>24]
}

// advance puts p into the register s. It is for short runs of bytes.
func advance(s uint32, p []byte) uint32 {
	for ; len(p) >= 4; p = p[4:] {
		s = step4(s ^ le.Uint32(p))
	}
	for _, b := range p {
		s = s>>8 ^ slicing[0][byte(s)^b]
	}
	return s
}
