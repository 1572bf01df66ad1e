//go:build unix

package soft

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileID identifies a file.
type fileID struct{ dev, ino uint64 }

// openInode returns the ID of the file of fd. The inode exists until the closer is closed.
func openInode(fd int) (fileID, io.Closer, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fileID{}, nil, err
	}
	file := os.NewFile(uintptr(own), "XRC domain")
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		_ = file.Close()
		return fileID{}, nil, err
	}
	return fileID{uint64(st.Dev), st.Ino}, file, nil //nolint:unconvert // Dev is smaller on some systems
}

// errLocked: another process writes to the file.
var errLocked = errors.New("another process writes to it")

// lockFile locks the file until the process ends; errLocked if another process has locked it.
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return nil // some file systems have no locks
}
