// Package untrusted reads and closes Unix sockets whose peer may be a process of another user.
//
// The peer can send descriptors. If nobody receives them, the kernel closes them in the thread that reads or closes the
// socket, and the close of a TCP socket with SO_LINGER waits until its data is acknowledged, for as long as the peer
// likes. A thread that waits is not available to the program, which ends at 10,000 of them. Since Linux 6.16 a socket
// can refuse descriptors; before that, and for what was sent early, a signal ends the wait.
//
// The package imports the standard library and golang.org/x/sys.
package untrusted
