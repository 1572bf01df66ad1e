//go:build unix

package soft

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errTaken says that another process writes to the file.
var errTaken = errors.New("another process writes to it")

// lockFile takes the file for this process until it ends.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errTaken
	}
	return nil // there are file systems without locks
}
