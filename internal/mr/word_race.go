//go:build race && (amd64 || arm64)

package mr

// The race detector replaces the functions of sync/atomic by its own, which report. So race builds have these in assembly.

// addWord adds to *p atomically and returns the sum.
//
//go:noescape
func addWord(p *uint64, add uint64) uint64

// casWord stores swap in *p if it holds old, atomically, and tells whether it did.
//
//go:noescape
func casWord(p *uint64, old, swap uint64) bool
