//go:build !linux

package verbs

// checkMemory would refuse memory that the process may not read or write; here nobody can be asked.
func checkMemory([]byte, bool) error { return nil }
