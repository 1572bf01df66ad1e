//go:build !linux

package doctor

// serveGroup is empty: this system has no verbena serve.
func serveGroup() string { return "" }
