package endpoint

import (
	"bytes"
	"fmt"
	"os"
)

// RSS returns the resident memory of this process in bytes.
func RSS() (uint64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	_, rest, ok := bytes.Cut(status, []byte("\nVmRSS:"))
	var kib uint64
	if !ok {
		return 0, fmt.Errorf("/proc/self/status has no VmRSS")
	}
	if _, err := fmt.Sscan(string(rest), &kib); err != nil {
		return 0, err
	}
	return kib << 10, nil
}
