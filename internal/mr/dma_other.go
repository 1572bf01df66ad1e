//go:build !race && !amd64

package mr

// dma is copy.
func dma(dst, src []byte) int { return copy(dst, src) }
