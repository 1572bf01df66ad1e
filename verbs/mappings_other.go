//go:build !linux

package verbs

// checkMemory allows any memory: this system has no list of mappings to read.
func checkMemory([]byte, bool) error { return nil }

func checkMappings([]byte, bool) error { return nil }
