package fdset

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

type inode struct{ dev, ino uint64 }

var known = struct {
	sync.Mutex
	// +checklocks:Mutex
	inodes map[inode]struct{}
	// +checklocks:Mutex
	most int // size at which those that are closed are removed
}{inodes: make(map[inode]struct{}), most: 256}

// inodeOf returns the inode of a descriptor, if it belongs to that descriptor and its duplicates alone: eventfds and
// the like share one.
func inodeOf(fd int) (inode, bool) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return inode{}, false
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFSOCK, unix.S_IFIFO, unix.S_IFREG:
		return inode{uint64(st.Dev), st.Ino}, true //nolint:unconvert // the type of Dev depends on the architecture
	}
	return inode{}, false
}

// Add adds a descriptor. It is safe for concurrent use.
func Add(fd int) {
	id, ok := inodeOf(fd)
	if !ok {
		return
	}
	known.Lock()
	defer known.Unlock()
	known.inodes[id] = struct{}{}
	if len(known.inodes) > known.most {
		prune()
		known.most = max(256, 2*len(known.inodes))
	}
}

// AddConn adds the descriptor of a connection or listener.
func AddConn(c syscall.Conn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { Add(int(fd)) })
	}
}

// Descriptors returns the descriptors that are open, in ascending order. It is safe for concurrent use. Without /proc
// it returns none.
func Descriptors() []Descriptor {
	known.Lock()
	defer known.Unlock()
	return prune()
}

// prune forgets the inodes that are closed, and returns the descriptors of the others.
//
// +checklocks:known.Mutex
func prune() (fds []Descriptor) {
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	open := make(map[inode]struct{})
	for _, e := range dir {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		id, ok := inodeOf(fd)
		if !ok {
			continue
		}
		if _, ok := known.inodes[id]; ok {
			open[id] = struct{}{}
			fds = append(fds, Descriptor{FD: fd, Dev: id.dev, Ino: id.ino})
		}
	}
	known.inodes = open
	slices.SortFunc(fds, func(a, b Descriptor) int { return a.FD - b.FD })
	return fds
}
