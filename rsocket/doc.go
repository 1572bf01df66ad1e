// Package rsocket is package net over RDMA: streams and datagrams on the wire protocol of librdmacm's rsocket. The
// peer may be a C program that uses that library, or any program with librspreload. (The RSocket protocol of
// reactive streams is something else.) Import it together with a provider of devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/rsocket"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// Dial, DialContext, Listen and ListenPacket are those of package net, and so are the connections: deadlines,
// half-close, contexts, net.Error. Everything that takes a net.Listener and a dialer works over it, such as
// net/http, gRPC and net/rpc:
//
//	l, err := rsocket.Listen("tcp", ":8080")            c, err := rsocket.Dial("tcp", "192.0.2.1:8080")
//	http.Serve(l, handler)                              fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
//
// Networks are called tcp and udp, because the addresses are the same; the ports are RDMA's own. Dialer and
// ListenConfig have the options. Sockets with the calls of C, rpoll and rsetsockopt among them, are package
// rsocket/socket.
//
// # How it works
//
// A stream is a ring of memory at the receiver. The receiver grants it in halves, together with credits for
// messages, and the sender fills it with RDMA WRITEs. The device places and acknowledges data by itself. Messages
// are processed, and credits granted, by the calls of the program: as in C, nothing is read ahead, and a
// connection without a call under way costs no processor time. A call polls for a while (Options.Polling), then
// sleeps.
//
// Write returns when its data is on its way. Close waits for the acknowledgement of what was written. A peer that
// violates the protocol or does not answer affects no other connection than its own, which fails with EPROTO,
// ETIMEDOUT or ECONNRESET.
//
// # Configuration
//
// Defaults come from files in /etc/rdma/rsocket; SetConfigDir and VERBENA_RSOCKET_CONFIG in the environment name
// another folder.
//
// The package owns a goroutine for each host with sockets and one for each listener. A datagram socket has one, and one
// for each local address that it has used. The package imports rdmacm, verbs, rsocket/internal/sock, internal/rs and
// internal/lookup.
package rsocket
