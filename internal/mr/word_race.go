//go:build race && (amd64 || arm64)

package mr

// In race builds the functions of sync/atomic report to the race detector. So race builds have these functions in
// assembly.

// addWord adds to *p atomically and returns the sum.
//
//go:noescape
func addWord(p *uint64, add uint64) uint64

// casWord stores swap in *p if it holds old, atomically, and reports whether it did.
//
//go:noescape
func casWord(p *uint64, old, swap uint64) bool
