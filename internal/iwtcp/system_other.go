//go:build !unix

package iwtcp

// setReuse does nothing: elsewhere the option lets two sockets have one port.
func setReuse(uintptr) error { return nil }
