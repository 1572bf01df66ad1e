// Package fdset knows the sockets, pipes and files in memory that this module has opened. A process that is forked
// without exec has them too, and as long as it lives the peers of its parent see open connections, although the parent
// has died. With the list the child can close them; Opening and Opened keep those from it that are not in the list yet.
// Only a program in C can fork that way.
//
// Raise and Dup leave low numbers to that program. Send writes on a socket without a signal for it. Limit is the number
// of descriptors that a process may have.
//
// The package knows a descriptor by its inode, so that duplicates are found and nothing must be done on close. Epoll
// instances, eventfds and timers are not in the list: they keep no connection open. It imports golang.org/x/sys.
package fdset

// Descriptor is a descriptor of this module, and the inode of the file that it stands for: the descriptor's number may
// stand for another file later.
type Descriptor struct {
	FD       int
	Dev, Ino uint64
}
