//go:build unix

package verbs

import "golang.org/x/sys/unix"

// inode identifies a file.
type inode struct{ dev, ino uint64 }

func inodeOf(fd int) (inode, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return inode{}, err
	}
	return inode{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // Dev is smaller on some systems
}
