// Package iwtcp runs iWARP QPs over the kernel's TCP. internal/iwarp has the protocol, this package the sockets:
//
//	setup.go          Dial, Listen: connections up to the end of MPA's start-up, for package rdmacm
//	qp_linux.go       QP: posting, receiving, sending, and the end of a connection
//	loop_linux.go     Device: one goroutine, which waits for the sockets of all QPs of a device
//
// A connection has a goroutine only during its start-up. Then its socket belongs to the device's epoll set. The
// goroutine of the device receives, a bounded number of bytes of one socket in a turn. The goroutine that posts sends
// at once, as far as the socket has room, and the goroutine of the device sends the rest.
//
// Locks are taken in this order: QP.mu, Config.Memory, those of the queues and CQs. loop.mu is taken last.
//
// QPs exist on Linux only. The package imports internal/{iwarp,transport,mr,fdset}, internal/link/pcap and
// golang.org/x/sys.
package iwtcp
