//go:build !linux

package control

// Process names the process at the other end; it is not known.
func (*Stream) Process() string { return "" }
