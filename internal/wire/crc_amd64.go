package wire

import "github.com/verbena-rdma/verbena/internal/wire/fold"

// passWide is faster than hash/crc32 for lengths below mostNarrow, where hash/crc32 uses tables, and from leastWide
// on.
const (
	mostNarrow = 64
	leastWide  = 256
)

var wide = fold.Available

var ethernet = fold.New(poly)

// passWide is update for at least 16 bytes. If dst is not nil it also stores p there; the two do not overlap.
func passWide(s uint32, dst *byte, p []byte) uint32 {
	var last [16]byte
	ethernet.Fold(&last, s, dst, p)
	return advance(0, last[:])
}
