package control

import (
	"fmt"
	"strconv"
	"strings"
)

var (
	programs = "@verbena-control/"
	captures = "@verbena-capture/"
)

// slots limits the captures of one user that are announced at the same time, and the programs with one process number
// (of several PID namespaces) that can be asked.
const slots = 8

// Name returns the name of the socket of a process. Several processes of one network namespace can have the same
// number if their PID namespaces differ: from the second one on a suffix distinguishes them.
func Name(uid, pid int) string { return fmt.Sprintf("%s%d/%d", programs, uid, pid) }

func nth(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, n)
}

// announcement returns the name of the socket of the n-th capture of a user.
func announcement(uid, n int) string { return fmt.Sprintf("%s%d/%d", captures, uid, n) }

// owner returns the user in a name.
func owner(name string) (uid int, ok bool) {
	for _, p := range []string{programs, captures} {
		if rest, found := strings.CutPrefix(name, p); found {
			s, _, _ := strings.Cut(rest, "/")
			n, err := strconv.ParseUint(s, 10, 32)
			return int(n), err == nil
		}
	}
	return 0, false
}
