//go:build !linux

package iwtcp

// setAnyPort does nothing: other systems do not have the option.
func setAnyPort(uintptr) {}
