//go:build !race && !amd64

package mr

// dma is what the copies of this package are made of. It is hidden from the race detector.
func dma(dst, src []byte) int { return copy(dst, src) }

// visibly is dma. With the race detector, which does not see dma, it is copy.
func visibly(dst, src []byte) int { return dma(dst, src) }
