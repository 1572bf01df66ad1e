//go:build unix

package soft

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// fileID tells files apart.
type fileID struct{ dev, ino uint64 }

// openInode identifies the file behind fd. Its inode lives until the closer is closed.
func openInode(fd int) (fileID, io.Closer, error) {
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fileID{}, nil, err
	}
	file := os.NewFile(uintptr(own), "the file of an XRC domain")
	var st unix.Stat_t
	if err := unix.Fstat(own, &st); err != nil {
		_ = file.Close()
		return fileID{}, nil, err
	}
	return fileID{uint64(st.Dev), st.Ino}, file, nil //nolint:unconvert // Dev is smaller on some systems
}
