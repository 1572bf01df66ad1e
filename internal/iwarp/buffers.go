package iwarp

import (
	"sync"

	"github.com/verbena-rdma/verbena/internal/wire/iwarp"
)

// All QPs share the buffers of FPDUs: a QP has one only while it needs it, and an idle connection none. They have two
// lengths, so that a short message does not hold a long one.

// shortLen is the length of a short buffer, in bytes.
const shortLen = 1 << 10

var (
	longs  = sync.Pool{New: func() any { return new([iwarp.MaxFPDU]byte) }}
	shorts = sync.Pool{New: func() any { return new([shortLen]byte) }}
)

// loan returns an empty buffer for n bytes, at most iwarp.MaxFPDU.
func loan(n int) []byte {
	if n <= shortLen {
		return shorts.Get().(*[shortLen]byte)[:0]
	}
	return longs.Get().(*[iwarp.MaxFPDU]byte)[:0]
}

// unloan gives back a buffer of loan, or nothing. It returns nil.
func unloan(b []byte) []byte {
	switch cap(b) {
	case shortLen:
		shorts.Put((*[shortLen]byte)(b[:shortLen]))
	case iwarp.MaxFPDU:
		longs.Put((*[iwarp.MaxFPDU]byte)(b[:iwarp.MaxFPDU]))
	}
	return nil
}
