package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Killed processes of verbena serve leave their directories, one for each address of each network namespace, which
// nobody else uses again if the namespace or the address has gone. The next verbena serve removes them. A directory in
// use is locked by its process (flock), so that one is never removed; makeDir checks after it has locked its own that
// it was not removed in between.

// removeLeftovers removes the directories of verbena serve in RunDir, except keep, whose processes have ended.
func (s *Server) removeLeftovers(keep string) {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/self/fd/%d", s.run))
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != keep && isFolder(e.Name()) {
			s.removeLeftover(e.Name())
		}
	}
}

// removeLeftover removes a directory if nobody has locked it and it has no files but the socket.
func (s *Server) removeLeftover(name string) {
	dir, err := openToLock(s.run, name)
	if err != nil {
		return
	}
	defer unix.Close(dir)
	if unix.Flock(dir, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	_ = unix.Unlinkat(dir, socketName, 0)
	_ = unix.Unlinkat(s.run, name, unix.AT_REMOVEDIR)
}

// isFolder reports whether a name is one of Key.folder.
func isFolder(name string) bool {
	var inode uint64
	var port uint16
	var rest string
	n, _ := fmt.Sscanf(name, "%d-%d-%s", &inode, &port, &rest)
	return n == 3
}

// openToLock opens a directory that is not a symbolic link.
func openToLock(at int, name string) (int, error) {
	return unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}

// lockedHere reports whether the directory that is open as dir is the one of that name.
func lockedHere(dir, at int, name string) bool {
	var own, now unix.Stat_t
	return unix.Fstat(dir, &own) == nil && unix.Fstatat(at, name, &now, unix.AT_SYMLINK_NOFOLLOW) == nil &&
		own.Dev == now.Dev && own.Ino == now.Ino
}
