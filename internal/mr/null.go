package mr

// NullChunk is the most bytes that Check returns of a null region, no less than the payload of any packet.
const NullChunk = 1 << 16

var (
	zeros [NullChunk]byte // never written
	sink  [NullChunk]byte // never read
)

// nothing returns n bytes of a null region, for writing if need contains a write access, otherwise for reading.
func nothing(n uint64, need Access) []byte {
	n = min(n, NullChunk)
	if need&LocalWrite != 0 {
		return sink[:n:n]
	}
	return zeros[:n:n]
}
