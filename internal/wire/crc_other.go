//go:build !amd64

package wire

const (
	mostNarrow, leastWide = 0, 0

	wide = false // hash/crc32 uses the processor's own instruction where there is one
)

func passWide(uint32, *byte, []byte) uint32 { panic("unreachable") }
