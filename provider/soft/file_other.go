//go:build !unix

package soft

import (
	"errors"
	"io"

	"github.com/verbena-rdma/verbena/verbs"
)

// fileID identifies a file.
type fileID struct{ dev, ino uint64 }

// openInode returns EOPNOTSUPP: this system has no inodes.
func openInode(int) (fileID, io.Closer, error) {
	return fileID{}, nil, fail(verbs.EOPNOTSUPP, "file descriptor: this system has no inodes; use a domain without a file")
}

// errLocked: another process writes to the file.
var errLocked = errors.New("another process writes to it")
