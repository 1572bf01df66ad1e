package run

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// kept is for how long a tree stays after its last use began.
const kept = 30 * 24 * time.Hour

const treePrefix = "sysfs-"

// write makes the tree a folder of root and returns its path. Equal trees have equal names, so that programs that run
// at the same time share one, and a finished tree is never changed.
func (t tree) write(root string) (string, error) {
	sum := sha256.New()
	paths := slices.Sorted(maps.Keys(t))
	for _, p := range paths {
		fmt.Fprintf(sum, "%s\x00%s\x00", p, t[p])
	}
	dir := filepath.Join(root, fmt.Sprintf("%s%.16x", treePrefix, sum.Sum(nil)))
	now := time.Now()
	if err := os.Chtimes(dir, now, now); err == nil {
		return dir, nil
	}
	removeOld(root, now.Add(-kept))
	work, err := os.MkdirTemp(root, treePrefix)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	for _, p := range paths {
		if err := put(work, p, t[p]); err != nil {
			return "", err
		}
	}
	// The rename fails if another process was faster: its tree is the same.
	if err := os.Rename(work, dir); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Lstat(dir); there != nil {
			return "", err
		}
	}
	return dir, nil
}

// put writes one file or link below dir.
func put(dir, path, text string) error {
	name, isLink := strings.CutSuffix(path, link)
	full := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		return err
	}
	if isLink {
		return os.Symlink(text, full)
	}
	return os.WriteFile(full, []byte(text), 0o400)
}

// removeOld removes trees that no program has begun to use since limit. Errors leave them.
func removeOld(root string, limit time.Time) {
	entries, _ := os.ReadDir(root)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), treePrefix) && info.ModTime().Before(limit) {
			_ = os.RemoveAll(filepath.Join(root, e.Name()))
		}
	}
}

// temporary is the folder for temporary files. A test replaces it.
var temporary = "/tmp"

// privateFolder returns a folder that only this user can write to: verbena in $XDG_RUNTIME_DIR, or verbena-UID in the
// folder for temporary files. If another user has that name there, it is one with a name that nobody knows before.
func privateFolder() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) && owned(dir) == nil {
		if path, err := claim(filepath.Join(dir, "verbena")); err == nil {
			return path, nil
		}
	}
	known := filepath.Join(temporary, fmt.Sprintf("verbena-%d", os.Geteuid()))
	path, err := claim(known)
	if err == nil || ours(known) {
		return path, err
	}
	made, _ := filepath.Glob(known + "-*")
	for _, path := range made {
		if owned(path) == nil {
			return path, nil
		}
	}
	return os.MkdirTemp(temporary, filepath.Base(known)+"-")
}

// ours reports whether this user can remove a file from the folder for temporary files.
func ours(path string) bool {
	st, err := os.Lstat(path)
	if err != nil {
		return false
	}
	uid, known := ownerOf(st)
	return known && uid == os.Geteuid()
}

// claim makes the folder if it is missing, and returns an error if it is not this user's alone.
func claim(path string) (string, error) {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return path, owned(path)
}

// owned returns an error if path is a link, or another user owns it or may write to it.
func owned(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return err
	}
	switch uid, known := ownerOf(st); {
	case !st.IsDir():
		return fmt.Errorf("%s is a %v: must be a folder of this user; remove it", path, kind(st.Mode()))
	case known && uid != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d: must belong to user %d; remove it", path, uid, os.Geteuid())
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s has mode %04o: others must not be able to write to it; chmod 700 it", path, st.Mode().Perm())
	}
	return nil
}

func kind(m fs.FileMode) string {
	if m&fs.ModeSymlink != 0 {
		return "symbolic link"
	}
	return "file"
}
