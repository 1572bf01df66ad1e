package verbs

import (
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// mapMemory takes pages of the system, not of Go's heap, which ends the program if it is out of memory.
func mapMemory(n int) ([]byte, *os.File, error) {
	at, err := windows.VirtualAlloc(0, uintptr(n), windows.MEM_RESERVE|windows.MEM_COMMIT, windows.PAGE_READWRITE)
	if err != nil {
		return nil, nil, ENOMEM
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n), nil, nil
}

func mapPrivate(n int) ([]byte, *os.File, error) { return mapMemory(n) }

func unmapMemory(mem []byte) error {
	return windows.VirtualFree(sliceStart(mem), 0, windows.MEM_RELEASE)
}
