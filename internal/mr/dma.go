//go:build !race

package mr

// visibly is dma. With the race detector, which does not see dma, it is copy.
func visibly(dst, src []byte) int { return dma(dst, src) }
