// Package rsocket is sockets over RDMA, on the wire protocol of librdmacm's rsocket: the other end may be a C program that uses
// that library, or any program that is preloaded with librspreload. (The RSocket protocol of reactive streams is something
// else.) Import it together with a provider of devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/rsocket"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// # As package net
//
// Dial, DialContext, Listen and ListenPacket are those of package net, and so are the connections: real deadlines, half-close,
// contexts, net.Error. Whatever takes a net.Listener and a dialer works over it, net/http, gRPC and net/rpc among them:
//
//	l, err := rsocket.Listen("tcp", ":8080")            c, err := rsocket.Dial("tcp", "192.0.2.1:8080")
//	http.Serve(l, handler)                              fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
//
// Networks are called tcp and udp, because the addresses are the same; the ports are RDMA's own. Dialer and ListenConfig have
// the options.
//
// # As librdmacm
//
// A Socket has the calls of C: flags and options, O_NONBLOCK, Poll and Select beside ordinary descriptors, and IOMap and IOWrite,
// which place data in the peer's memory. The documentation of each symbol names its C twin.
//
// # How it works
//
// A stream is a ring of memory at the receiver, which hands it out in halves and grants credits for messages; the sender fills it with
// RDMA WRITEs. The device places and acknowledges data by itself, but what it means, and the granting of more, is seen to by the calls of
// the program: as in C, nothing is read ahead, and a connection on which no call is under way costs nothing. A call first
// looks again and again for a while (Options.Polling), then sleeps.
//
// Write returns when its data is on its way. Close waits for the acknowledgement of what was written. A peer that breaks the protocol,
// or vanishes, costs its own connection: EPROTO, ETIMEDOUT or ECONNRESET.
//
// # Configuration
//
// Defaults come from the files in ConfigDir, /etc/rdma/rsocket, or the folder that VERBENA_RSOCKET_CONFIG in the environment names.
//
// The package owns a goroutine for each host with sockets, one for each listener and two for each datagram socket. It imports
// rdmacm, verbs, internal/rs, internal/notify and internal/lookup.
package rsocket
