// Package rdmacm is the RDMA connection manager: it finds the device and the path to an IP address, makes, accepts,
// refuses and ends connections between queue pairs, finds datagram services and joins multicast groups. It is
// librdmacm in Go, with its rules and error numbers, and interoperates with programs that use librdmacm or the
// kernel's rdma_cm. Import it together with a provider of devices:
//
//	import (
//		"github.com/verbena-rdma/verbena/rdmacm"
//		_ "github.com/verbena-rdma/verbena/provider/soft"
//	)
//
// # Two calls
//
// Listen and Accept on one side, Dial on the other, return IDs with connected queue pairs:
//
//	l, err := rdmacm.Listen(ctx, ":7471", nil)     id, err := rdmacm.Dial(ctx, "192.0.2.1:7471", nil)
//	id, err := l.Accept(ctx)                       mr, err := id.RegMsgs(buf)
//	                                               err = id.PostSend(1, buf, mr, verbs.SendSignaled)
//
// Requests that have no method here, as in C, go to the QP: ID.QP().PostSend takes immediate data, atomics and
// batches. examples/filetransfer is a whole program, with WRITEs with immediate data, flow control, and the loss of a
// peer.
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
// An ID on an EventChannel is asynchronous: a call begins an operation, and an event, which GetEvent, Ready, Events or
// FD bring, reports the result. Each event must be acknowledged. An ID without a channel is synchronous: calls wait,
// and ID.Event has the last event. A call that waits ends when its context does, with an error that wraps the
// context's; the operation continues until Close.
//
// Datagram IDs (PSUDP) have no connections: Connect looks up the QP that serves a port, Accept answers a look-up.
//
// # When the peer leaves
//
// EventDisconnected reports that the peer called Disconnect or Close. Programs with synchronous IDs need not wait for
// it: GetRecvComp, which waits for the peer's messages, returns io.EOF. A program that waits for nothing else calls
// ID.Channel().GetEvent. Then call Disconnect, which answers the peer, and Close.
//
// A peer that is killed sends nothing. Others report its death, as the kernel does for C programs: EventDisconnected
// comes at once, or EventRejected if the connection was not established yet. If the peer was a process of this host
// that is reached through shared memory, this device reports it, and the QP goes to ERR. Else other processes that
// share the peer's device do; "verbena serve" is one. If there is none, the device learns within 15 s that the peer's
// port is closed, if ICMP messages can pass: EventDisconnected comes with the status -ETIMEDOUT. If the whole host is
// down, or a new process has opened the device, only a side that sends notices it, after all retries. SetKeepAlive and
// Options.KeepAlive make an idle QP send. On adapters, which lack them, the program posts a WRITE of 0 bytes at
// intervals: it needs neither address nor key, the peer's device acknowledges it, and its program does not notice it.
//
// # Errors
//
// An error has the call, the ID, what was wrong and what is allowed; errors.Is finds its errno, ECONNREFUSED or EINVAL
// as in C. A call that fails because of its arguments or the ID's state has changed nothing. Later failures
// come as an event with a Status. The call of a synchronous ID returns it as its error, and ID.Event is
// the event with the peer's private data. docs/porting-librdmacm.md has a list of errors.
//
// Bad messages from the network are dropped and counted (Host.Counters): those that are malformed, repeated, from
// another address than the peer's, or about no connection. So are requests beyond a listener's backlog.
//
// # Names
//
// The documentation of each symbol names its C twin. rdma_create_ep and rdma_destroy_ep are CreateEP and Close. Ports
// are in host order. The fields of struct rdma_cm_id are methods of ID.
//
// # Concurrency
//
// A device in use has three goroutines here, whatever the number of IDs. Queue pairs are connected as soon as the
// peer's answer comes. But EventDisconnected and EventRejected move them to ERR, and EventMulticastJoin attaches them,
// when the program retrieves the event (effects.go). The order of locks is in manager.go.
//
// # Where to look
//
// The way of a connection: connect.go the active side, accept.go the passive side, disconnect.go its end. connection.go
// has the states of a connection as a table, manager.go the connection management of a device, calls.go its calls of
// internal/cm, dispatch.go the way back from there to the IDs, effects.go what happens when an event is retrieved.
// kernel.go and kernelevents.go have the connections of adapters, stream.go those of iWARP. The parts of an ID:
// addr.go, route.go, option.go, listen.go, connection.go, qp.go, sync.go.
//
// The package imports verbs, umad, internal/cm, internal/driver, internal/gsi, internal/lookup, internal/seam,
// internal/sysroute, internal/wire, internal/wire/cmmsg, internal/link, internal/notify, internal/control and
// observe; for iWARP internal/iwtcp, internal/iwarp and internal/wire/iwarp (stream.go); for adapters internal/ucma
// (kernel.go).
package rdmacm
