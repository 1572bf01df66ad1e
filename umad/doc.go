// Package umad sends and receives management datagrams (MADs), messages of 256 bytes between queue pairs 1 for
// connection management and other managers of an RDMA network. It replaces libibumad and libibmad for a RoCE port.
//
//	Open ---> Port ......................... QP 1 of a device, shared by all users in the process
//	            |  Register(class, methods, attributes)
//	          Agent  Send ................... one datagram, no answer expected
//	                 Call ................... a request that is repeated until its answer arrives
//	                 Recv, or a Handler ..... requests of others that match the registration
//
// A datagram with the response bit goes to the agent of the Call with its transaction ID, class and sender. Any other
// goes to the agent that is registered for its class, method and attribute. A datagram without an agent is dropped
// and counted (Counters), and so is one whose agent has a full queue. No datagram that arrives can block or cause an
// error. Where several processes share an address, only connection management finds its process. Any other datagram
// arrives at one of them; the programs cannot choose which.
//
// QP 1 of an adapter, or of a kernel device such as rxe0, is the kernel's: there the package uses
// /dev/infiniband/umadN, which is root's. The kernel takes requests of connection management itself (EBUSY). It permits
// 32 agents of a port; those without a class version count twice. It sends the requests of Call again itself. Answers
// to Call arrive over IPv6 only: the kernel drops those that come over IPv4.
//
// All Ports of a device together have one goroutine, on an adapter one for each port. All functions are safe for
// concurrent use. Numbers are in host order, addresses are IP addresses, which are the GIDs of RoCE. A datagram has the
// P_Key of Address.PKeyIndex.
//
// The sources are IBTA volume 1, chapter 13 and annex A17. The package imports verbs, internal/driver, internal/gsi,
// internal/kmad, internal/secret and internal/wire.
package umad
