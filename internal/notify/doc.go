// Package notify makes file descriptors that poll, select and epoll report as readable between Raise and Clear, for
// programs that wait for events of Verbena together with others. It imports golang.org/x/sys.
package notify
