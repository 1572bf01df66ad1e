//go:build !linux

package control

// Process names the process at the other end; it is not known.
func (*Stream) Process() string { return "" }

// User returns the user of the process at the other end.
func (*Stream) User() (int, error) { return 0, errSystem }
