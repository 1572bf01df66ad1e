//go:build !linux

package endpoint

import "runtime"

// RSS returns the bytes that the Go runtime has obtained from the system, an upper bound of the resident
// memory.
func RSS() (uint64, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased, nil
}
