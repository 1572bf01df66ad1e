// Package notify makes file descriptors that poll, select and epoll report as readable between Raise and Clear, for
// programs that wait for events of Verbena together with others, and counts events in descriptors of the program
// (Semaphore). It counts the goroutines that events have made ready (Goroutine). It imports golang.org/x/sys and
// internal/fdset.
package notify
