//go:build !linux

package soft

// prefetch does nothing: it is a hint.
func prefetch([]byte, bool) error { return nil }
