//go:build !linux

package control

// Process names the process at the other end; it is not known.
func (*Stream) Process() string { return "" }

// Account returns the user whose limits count for the process at the other end.
func (*Stream) Account() (int, error) { return 0, errSystem }
