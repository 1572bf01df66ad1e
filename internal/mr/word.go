//go:build !race || (!amd64 && !arm64)

package mr

import "sync/atomic"

// addWord adds to *p atomically and returns the sum.
func addWord(p *uint64, add uint64) uint64 { return atomic.AddUint64(p, add) }

// casWord stores swap in *p if it holds old, atomically, and reports whether it did.
func casWord(p *uint64, old, swap uint64) bool { return atomic.CompareAndSwapUint64(p, old, swap) }
