package transport

import "errors"

// Errors of a queue pair.
var (
	// ErrQueueFull is returned if the queue already holds its maximum of outstanding work requests. A request is
	// outstanding until its completion has been polled (V-GEN-06).
	ErrQueueFull = errors.New("the queue is full: a request keeps its place until its completion, or that of a later " +
		"signaled one, was polled")
	ErrState     = errors.New("the queue pair's state does not allow posting to this queue")
	ErrMoved     = errors.New("the queue pair has moved to another state by itself")
	ErrFixedSize = errors.New("the size of this queue cannot be changed")
)

// CeilPow2 returns the smallest power of two that is at least n: the size of a ring of n entries.
func CeilPow2(n int) int {
	p := 1
	for p < n {
		p <<= 1
	}
	return p
}
