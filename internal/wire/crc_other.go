//go:build !amd64

package wire

const (
	mostNarrow, leastWide = 0, 0

	wide = false // hash/crc32 uses the processor's own instruction, if it has one
)

func passWide(uint32, *byte, []byte) uint32 { panic("unreachable") }
