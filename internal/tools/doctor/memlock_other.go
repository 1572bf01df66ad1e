//go:build !linux

package doctor

// lockedMemory returns the limit of locked memory in bytes; false if there is none.
func lockedMemory() (uint64, bool) { return 0, false }
