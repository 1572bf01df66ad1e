package lookup

import (
	"errors"
	"syscall"
)

// Exhausted reports whether an error is a lack of descriptors or memory, of this process or of the system. It says
// nothing about the peer or the device.
func Exhausted(err error) bool {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}
