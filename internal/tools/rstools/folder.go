package rstools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// copyFolder is the folder in which the server of rcopy writes files. The C program writes wherever its
// user may, for every client that reaches its port, without authentication.
type copyFolder struct {
	anywhere bool
	path     string // absolute
	root     *os.Root
}

func (c *copyFolder) open(path string) (err error) {
	if c.anywhere {
		return nil
	}
	if c.path, err = filepath.Abs(path); err == nil {
		c.root, err = os.OpenRoot(c.path)
	}
	if err != nil {
		return fmt.Errorf("%w; --folder names a folder that exists", err)
	}
	return nil
}

func (c *copyFolder) String() string {
	if c.anywhere {
		return "clients write any file that this user can write"
	}
	return fmt.Sprintf("clients write files below %q only; --folder FOLDER names another one, --anywhere all", c.path)
}

// create creates or truncates a file that a client names: below the folder by a relative name, or by its
// absolute name. It returns EACCES for any other name, and for a symbolic link that leads out of the
// folder.
func (c *copyFolder) create(name string, mode os.FileMode) (*os.File, error) {
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	if c.anywhere {
		return os.OpenFile(name, flags, mode)
	}
	local := name
	if filepath.IsAbs(name) {
		if rel, err := filepath.Rel(c.path, name); err == nil {
			local = rel
		}
	}
	if !filepath.IsLocal(local) {
		return nil, outside(name, c.path)
	}
	f, err := c.root.OpenFile(local, flags, mode)
	if errno := syscall.Errno(0); err != nil && !errors.As(err, &errno) { // os has no errno for this error
		return nil, outside(name, c.path)
	}
	return f, err
}

func outside(name, folder string) error {
	return fmt.Errorf("%q is not below %q: %w", name, folder, syscall.EACCES)
}
