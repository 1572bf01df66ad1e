// Package rdmacm is the RDMA connection manager: it finds the device and the way to an IP address, makes, accepts,
// refuses and ends connections between queue pairs, finds datagram services and joins multicast groups. It is librdmacm in Go, with
// its rules and error numbers, and talks to programs that use librdmacm or the kernel's rdma_cm. Import it together with a
// provider of devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/rdmacm"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// # Two calls
//
// Listen and Accept on one side, Dial on the other, give IDs with connected queue pairs:
//
//	l, err := rdmacm.Listen(ctx, ":7471", nil)     id, err := rdmacm.Dial(ctx, "192.0.2.1:7471", nil)
//	id, err := l.Accept(ctx)                       mr, err := id.RegMsgs(buf)
//	                                               err = id.PostSend(1, buf, mr, verbs.SendSignaled)
//
// Requests that have no method here, as in C, go to the QP: ID.QP().PostSend takes immediate data, atomics and batches. examples/filetransfer is a whole
// program, with WRITEs with immediate, flow control, and peers that vanish.
//
// # Every step
//
//	active                                   passive
//	CreateEventChannel, CreateID             CreateEventChannel, CreateID
//	ResolveAddr      EventAddrResolved       BindAddr, Listen
//	CreateQP                                                  EventConnectRequest (a new ID)
//	ResolveRoute     EventRouteResolved      CreateQP, post receives
//	Connect          EventEstablished        Accept           EventEstablished
//	...                                      ...
//	Disconnect       EventDisconnected       Disconnect       EventDisconnected
//	DestroyQP, Close                         DestroyQP, Close
//
// An ID on an EventChannel is asynchronous: a call begins something, GetEvent, Ready, Events or FD tell what has become of
// it, and each event must be acknowledged. An ID without a channel is synchronous: calls wait, ID.Event
// has the last event. A call that waits ends when its context does, with an error that wraps the context's; what it has begun goes on until Close.
//
// Datagram IDs (PSUDP) have no connections: Connect finds out which QP serves a port, Accept tells.
//
// # When the peer leaves
//
// A peer that calls Disconnect or Close is told of by EventDisconnected. Who has synchronous IDs need not look for it: GetRecvComp, which waits for the peer's
// messages, returns io.EOF; who waits for nothing else calls ID.Channel().GetEvent. Then call Disconnect, which answers the peer, and Close.
//
// A peer that is killed sends nothing, but others do, as the kernel does for C programs: EventDisconnected comes at once, or EventRejected if the connection was still being made.
// They are this device, if the peer was a process of this host that is reached through shared memory (the QP goes to ERR then), and other processes that share the peer's device;
// "verbena serve" is one. If there was none, or the whole host is gone, only a side that sends notices it, after all retries. So let a connection to another host that matters
// carry something from time to time: a WRITE of no bytes, with neither address nor key, will do. The peer's device acknowledges it, its program notices nothing.
//
// # Errors
//
// An error says what was called, on which ID, what was wrong and what is allowed; errors.Is finds its errno, ECONNREFUSED or EINVAL as in C. A call that
// fails because of its arguments or the ID's state has changed nothing. What fails later comes as an event with a Status,
// which a synchronous ID's call returns as its error, the event with the peer's private data being ID.Event. docs/porting-librdmacm.md has a list of what
// errors mean.
//
// Nothing that comes from the network can do harm: messages that are malformed, from elsewhere than the peer, repeated or about nothing are
// dropped and counted (Host.Counters), requests beyond a listener's backlog too.
//
// # Names
//
// The documentation of each symbol names its C twin. rdma_create_ep and rdma_destroy_ep are CreateEP and Close. Ports are in
// host order. What C returns through pointers in struct rdma_cm_id are methods of ID.
//
// # What runs
//
// A device in use has three goroutines here, whatever the number of IDs. Queue pairs are connected as soon as the peer's answer
// comes, not when the program retrieves the event; but EventDisconnected and EventRejected move them to ERR, and EventMulticastJoin
// attaches them, when the program retrieves the event.
//
// The package imports verbs, umad, internal/cm, internal/wire, internal/wire/cmmsg, internal/link, internal/notify and internal/control.
package rdmacm
