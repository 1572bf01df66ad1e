package doctor

import "golang.org/x/sys/unix"

// lockedMemory returns the limit of locked memory in bytes; false if there is none.
func lockedMemory() (uint64, bool) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil || limit.Cur == ^uint64(0) {
		return 0, false
	}
	return limit.Cur, true
}
