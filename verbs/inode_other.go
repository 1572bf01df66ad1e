//go:build !unix

package verbs

// inode tells files apart.
type inode struct{}

func inodeOf(int) (inode, error) { return inode{}, ErrNotSupported }
