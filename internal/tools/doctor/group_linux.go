package doctor

import (
	"os"
	"os/user"
	"strconv"
	"syscall"

	"github.com/verbena-rdma/verbena/internal/host"
)

// serveGroup is the group whose users verbena serve admits; empty if no verbena serve shares with a group.
func serveGroup() string {
	const groupMayEnter = 0o010
	entries, _ := os.ReadDir(host.RunDir())
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&groupMayEnter == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			gid := strconv.Itoa(int(st.Gid))
			if g, err := user.LookupGroupId(gid); err == nil {
				return g.Name
			}
			return gid
		}
	}
	return ""
}
