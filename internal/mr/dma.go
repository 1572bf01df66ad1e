//go:build !race

package mr

func dma(dst, src []byte) int { return copy(dst, src) }
