//go:build unix

package run

import (
	"io/fs"
	"syscall"
)

// ownerOf returns the user that owns a file.
func ownerOf(st fs.FileInfo) (uid int, known bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}
