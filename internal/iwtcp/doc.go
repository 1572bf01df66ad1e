// Package iwtcp runs iWARP QPs over the kernel's TCP. internal/iwarp has the protocol, this package the sockets:
//
//	setup.go          Dial, Listen: connections up to the end of MPA's start-up, for package rdmacm
//	qp_linux.go       QP: its states, and posting; keepalive_linux.go: the checks of an idle peer
//	start_linux.go    the start of a connection; stream_linux.go: receiving and sending; end_linux.go: its end
//	linger_linux.go   the sockets of destroyed QPs, until their peers close their side
//	counters.go       the counters; view_linux.go: snapshots of QPs for tools
//	loop_linux.go     Device: the sockets of all QPs of a device, read by pollers of CQs and by one goroutine
//	near_linux.go     the way through shared memory between processes of one host; hot_linux.go: polling it
//
// A connection has a goroutine only during its start-up, and while both ends agree on shared memory. Then its socket
// belongs to the device's epoll set. The goroutine that has the turn receives a bounded number of bytes of each socket.
// It is a poller of a CQ, or the goroutine of the device while no program polls. The goroutine that posts sends at
// once, as far as the socket has room. The next turns send the rest.
//
// Locks are taken in this order: loop.turn, QP.mu, Config.Memory, those of the queues and CQs. loop.mu is taken last.
//
// QPs exist on Linux only. The package imports internal/{engine,fdset,iwarp,link,mr,transport},
// internal/link/{pcap,shm}, internal/wire/iwarp and golang.org/x/sys.
package iwtcp
