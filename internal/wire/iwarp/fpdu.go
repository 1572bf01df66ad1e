package iwarp

import (
	"encoding/binary"
	"hash/crc32"
	"unsafe"

	"github.com/verbena-rdma/verbena/internal/wire/fold"
)

// Lengths of the parts of an FPDU, in bytes.
const (
	LengthLen = 2 // the length of the ULPDU
	CRCLen    = 4

	MaxULPDU = 64768                        // the longest ULPDU
	MaxFPDU  = LengthLen + MaxULPDU + 2 + 4 // the longest FPDU: with 2 bytes of pad and the CRC
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	folding    = fold.New(crc32.Castagnoli)
)

// Pad returns the number of zero bytes between a ULPDU of n bytes and its CRC: length, ULPDU and pad are a multiple of
// 4 bytes.
func Pad(n int) int { return -(LengthLen + n) & 3 }

// FPDULen returns the length of the FPDU of a ULPDU of n bytes.
func FPDULen(n int) int { return LengthLen + n + Pad(n) + CRCLen }

// UpdateCRC continues a CRC-32C over more bytes of an FPDU: its length, ULPDU and pad, in this order. The CRC of no
// bytes is 0.
func UpdateCRC(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }

// SumsWhileCopying reports whether CopyCRC is faster than a copy followed by UpdateCRC.
var SumsWhileCopying = fold.Available

// LeastSum is the length of a payload from which CopyCRC is faster.
const LeastSum = 256

// CopyCRC copies src to dst, which does not overlap it and is at least as long, and returns UpdateCRC of src. The
// length is a multiple of 16 and at least LeastSum. If src changes meanwhile, the result is that of the stored bytes.
//
// It may be called only if SumsWhileCopying is true.
func CopyCRC(crc uint32, dst, src []byte) uint32 {
	_ = dst[:len(src)]
	var last [16]byte
	folding.Fold(&last, ^crc, unsafe.SliceData(dst), src)
	return crc32.Update(^uint32(0), castagnoli, last[:])
}

// PutCRC stores a CRC in the last 4 bytes of an FPDU, least significant byte first.
func PutCRC(b []byte, crc uint32) { binary.LittleEndian.PutUint32(b, crc) }

// CRCOf reads what PutCRC stored.
func CRCOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }

// AppendFPDU appends the FPDU of a ULPDU of at most MaxULPDU bytes to b, with its CRC, or with 0 in its place. It is
// for tests and tools: the data path does not copy payload.
func AppendFPDU(b, ulpdu []byte, withCRC bool) []byte {
	from := len(b)
	b = be.AppendUint16(b, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	b = append(b, make([]byte, Pad(len(ulpdu)))...)
	crc := uint32(0)
	if withCRC {
		crc = UpdateCRC(0, b[from:])
	}
	return binary.LittleEndian.AppendUint32(b, crc)
}

// FPDU is one framed ULPDU, complete.
type FPDU []byte

// ParseFPDU returns the FPDU at the beginning of b. It returns ErrShort if bytes are missing, ErrLength for a length
// that no ULPDU has.
func ParseFPDU(b []byte) (FPDU, error) {
	if len(b) < LengthLen {
		return nil, ErrShort
	}
	n := int(be.Uint16(b))
	switch {
	case n < TaggedLen || n > MaxULPDU:
		return nil, ErrLength
	case len(b) < FPDULen(n):
		return nil, ErrShort
	}
	return FPDU(b[:FPDULen(n)]), nil
}

// ULPDU is the content.
func (f FPDU) ULPDU() []byte { return f[LengthLen : LengthLen+int(be.Uint16(f))] }

// CRC is the checksum that the sender stored.
func (f FPDU) CRC() uint32 { return CRCOf(f[len(f)-CRCLen:]) }

// Intact reports whether the checksum is that of the content.
func (f FPDU) Intact() bool { return UpdateCRC(0, f[:len(f)-CRCLen]) == f.CRC() }
