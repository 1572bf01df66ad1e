//go:build !unix

package fdset

// Limit returns 0: the system has no limit.
func Limit() int { return 0 }
