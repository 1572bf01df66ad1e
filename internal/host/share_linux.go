package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Share makes the folder of a group, so that processes of several users can be in it: all that may write there. mode has the
// permissions, and gid, unless that is negative, the group of users. It must be done before anybody joins; a folder that is there
// already gets the permissions, which count from the next process on.
func Share(key Key, mode fs.FileMode, gid int) (dir string, err error) {
	if dir, err = key.folder(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("the folder for what users share: %w (set %s, for all of them, to use another one)", err, envRun)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("the folder for what users share: %w (set %s, for all of them, to use another one)", err, envRun)
	}
	if err := os.Chown(dir, -1, gid); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, mode&fs.ModePerm|fs.ModeSetgid)
}

// Unshare removes the folder, and returns false if processes still use it. What this process had there must be closed.
func Unshare(key Key) bool {
	n, err := key.names()
	if err != nil || n.dir == "" {
		return false
	}
	var locks []*os.File
	defer func() {
		for _, l := range locks {
			l.Close()
		}
	}()
	all := []string{leaderName}
	for lane := range Lanes {
		all = append(all, laneName(lane))
	}
	for _, what := range all {
		l, err := n.lock(what)
		if err != nil {
			return false
		}
		locks = append(locks, l)
	}
	return os.RemoveAll(n.dir) == nil
}
