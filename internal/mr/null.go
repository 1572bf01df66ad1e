package mr

// NullChunk is the most bytes that Check finds in a null region at once. No packet has more.
const NullChunk = 1 << 16

var (
	zeros [NullChunk]byte // never written
	sink  [NullChunk]byte // never read
)

// nothing is n bytes of a null region: to write to if need says so, otherwise to read.
func nothing(n uint64, need Access) []byte {
	n = min(n, NullChunk)
	if need&LocalWrite != 0 {
		return sink[:n:n]
	}
	return zeros[:n:n]
}
