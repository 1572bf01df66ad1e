package rs

import "fmt"

// Op is the operation of a message word: its upper three bits.
type Op uint32

// The operations. 1, 3 and 5 are reserved, 2 is never sent.
const (
	OpData  Op = 0 // the word's data is the number of bytes written
	OpSGL   Op = 4 // a new credit limit, and possibly a new entry of the table
	OpIOMap Op = 6 // an entry of the table of IO maps was written
	OpCtrl  Op = 7 // one of the Ctrl values
)

// The data of OpCtrl.
const (
	CtrlDisconnect uint32 = 0
	CtrlKeepalive  uint32 = 1
	CtrlShutdown   uint32 = 2
)

// DataBits is the number of data bits in a message word.
const DataBits = 29

const dataMask = 1<<DataBits - 1

// Word makes a message word, which is sent as immediate data (W-RS-09).
func Word(op Op, data uint32) uint32 { return uint32(op)<<DataBits | data&dataMask }

// Split splits a message word.
func Split(word uint32) (op Op, data uint32) { return Op(word >> DataBits), word & dataMask }

func (op Op) String() string {
	switch op {
	case OpData:
		return "DATA"
	case OpSGL:
		return "SGL"
	case OpIOMap:
		return "IOMAP_SGL"
	case OpCtrl:
		return "CTRL"
	}
	return fmt.Sprintf("op %d", uint32(op))
}

// Scale encodes a number in one byte: up to 128 unchanged, larger ones as multiples of 256 (W-RS-08). Numbers above
// 32767 count as 32767.
func Scale(v int) uint8 {
	v = min(max(v, 0), 0x7fff)
	if v <= 128 {
		return uint8(v)
	}
	return uint8(0x80 | v>>8)
}

// Unscale decodes a scaled byte.
func Unscale(b uint8) int {
	if b <= 128 {
		return int(b)
	}
	return int(b&0x7f) << 8
}
