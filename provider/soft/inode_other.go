//go:build !unix

package soft

import (
	"io"

	"github.com/verbena-rdma/verbena/verbs"
)

// fileID tells files apart.
type fileID struct{}

// openInode answers EOPNOTSUPP: this system has no inodes.
func openInode(int) (fileID, io.Closer, error) {
	return fileID{}, nil, fail(verbs.EOPNOTSUPP, "this system has no inodes; use a domain without a file")
}
