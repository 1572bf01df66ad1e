//go:build !unix

package iwtcp

// setReuse does nothing: elsewhere the option lets two sockets have one port.
func setReuse(uintptr) error { return nil }

// descriptors is 0: the system has no limit.
func descriptors() int { return 0 }
