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

// slots is how many captures of one user are announced at the same time, and how many programs with one process number (of
// several PID namespaces) can be asked.
const slots = 8

// Name is the address of a process's socket. Several processes of one network namespace may have the same number if
// their PID namespaces differ: as of the second one a suffix tells them apart.
func Name(uid, pid int) string { return fmt.Sprintf("%s%d/%d", programs, uid, pid) }

func nth(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s.%d", name, n)
}

// announcement is the address where the n-th capture of a user is called.
func announcement(uid, n int) string { return fmt.Sprintf("%s%d/%d", captures, uid, n) }

// owner is the user in a name.
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
