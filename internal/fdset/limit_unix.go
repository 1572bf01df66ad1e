//go:build unix

package fdset

import "syscall"

// Limit returns the number of descriptors that the process may have (ulimit -n), at most 2^30; 0 if it is unknown.
func Limit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(l.Cur, 1<<30))
}
