//go:build !linux

package fdset

import "syscall"

// Add does nothing: programs in C are for Linux only.
func Add(int) {}

// AddConn does nothing.
func AddConn(syscall.Conn) {}

// Descriptors returns none.
func Descriptors() []Descriptor { return nil }
