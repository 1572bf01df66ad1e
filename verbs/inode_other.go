//go:build !unix

package verbs

// inode identifies a file.
type inode struct{}

func inodeOf(int) (inode, error) { return inode{}, ErrNotSupported }
