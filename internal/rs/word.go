package rs

import "fmt"

// Op is what a message word says: its upper three bits.
type Op uint32

// The operations. 1, 3 and 5 are reserved, 2 never travels.
const (
	OpData  Op = 0 // as many bytes as the word's data says were written
	OpSGL   Op = 4 // a new limit of credits, and perhaps a new entry of the table
	OpIOMap Op = 6 // an entry of the table of IO maps was written
	OpCtrl  Op = 7 // one of the Ctrl values
)

// What a message of OpCtrl says.
const (
	CtrlDisconnect uint32 = 0
	CtrlKeepalive  uint32 = 1
	CtrlShutdown   uint32 = 2
)

// DataBits is how many bits of a message word are data.
const DataBits = 29

const dataMask = 1<<DataBits - 1

// Word makes a message word, which travels as immediate data (W-RS-09).
func Word(op Op, data uint32) uint32 { return uint32(op)<<DataBits | data&dataMask }

// Split takes a message word apart.
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

// Scale is how a number travels in one byte: up to 128 as it is, larger ones as multiples of 256 (W-RS-08). Numbers beyond 32767
// count as 32767.
func Scale(v int) uint8 {
	v = min(max(v, 0), 0x7fff)
	if v <= 128 {
		return uint8(v)
	}
	return uint8(0x80 | v>>8)
}

// Unscale is the number that a scaled byte stands for.
func Unscale(b uint8) int {
	if b <= 128 {
		return int(b)
	}
	return int(b&0x7f) << 8
}
