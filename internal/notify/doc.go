// Package notify makes file descriptors that poll, select and epoll show readable between Raise and Clear: for
// programs that wait for events of this module together with others. It imports golang.org/x/sys.
package notify
