// Package umad sends and receives management datagrams (MADs), the 256-byte messages between queue pairs 1
// that connection management and other managers of an RDMA network speak. It has the place of libibumad and
// libibmad for a RoCE port.
//
//	Open ---> Port ......................... QP 1 of a device, shared by everybody in the process
//	            |  Register(class, methods, attributes)
//	          Agent  Send ................... one datagram, no answer expected
//	                 Call ................... a request that is repeated until its answer comes
//	                 Recv, or a Handler ..... requests of others that the agent is registered for
//
// A datagram with the response bit goes to the agent whose Call it answers, found by transaction ID, class and sender.
// Any other goes to the agent that is registered for its class, method and attribute. What nobody waits for is dropped
// and counted (Counters); so is what an agent does not fetch in time. Nothing that arrives can block, or fail anything.
//
// A Port has one goroutine. Everything here is safe for concurrent use. Numbers are in host order, addresses are IP
// addresses, which on RoCE are the GIDs. There is one P_Key, the default one.
//
// The sources are IBTA volume 1, chapter 13 and annex A17. The package imports verbs and internal/wire.
package umad
