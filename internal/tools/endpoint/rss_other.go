//go:build !linux

package endpoint

import "runtime"

// RSS is what the Go runtime has from the system, in bytes: an upper bound of what is resident.
func RSS() (uint64, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Sys - m.HeapReleased, nil
}
