//go:build !amd64

package fold

// Available reports whether the processor can.
const Available = false

// CRC is empty.
type CRC struct{}

// New returns the CRC of a polynomial.
func New(uint32) *CRC { return nil }

// Fold must not be called.
func (*CRC) Fold(*[16]byte, uint32, *byte, []byte) { panic("unreachable") }
