package environ

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Elevated reports whether the process has more rights than the user who started it. It reports the same for the whole
// life of the process: a program that has given up its rights may have opened files before.
var Elevated = sync.OnceValue(func() bool {
	if os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid() {
		return true
	}
	list, err := unix.Auxv()
	if err != nil {
		return false
	}
	const atSecure = 23 // AT_SECURE
	for _, entry := range list {
		if entry[0] == atSecure {
			return entry[1] != 0
		}
	}
	return false
})
