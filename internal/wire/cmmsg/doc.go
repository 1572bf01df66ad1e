// Package cmmsg holds the messages of InfiniBand connection management (CM): each is a typed []byte over the 232
// data bytes of a management datagram, with getters and setters. It also holds the conventions of rdma_cm: service
// IDs and the addresses before the private data.
//
//	connect  REQ -> (MRA) -> REP -> RTU      look up a datagram service   SIDR_REQ -> SIDR_REP
//	refuse   REJ                             load an alternate path       LAP -> APR
//	close    DREQ -> DREP
//
//	msg.go   the datagram as a whole, ECE      rej.go    REJ, MRA and their codes
//	req.go   REQ                               close.go  RTU, DREQ, DREP
//	path.go  a path inside REQ and LAP         sidr.go   SIDR_REQ, SIDR_REP
//	rep.go   REP                               lap.go    LAP, APR
//	ip.go    service IDs, port spaces, the 36 bytes before rdma_cm's private data
//	format.go a message as text
//
// Parse checks a datagram once; after that no accessor fails, allocates or copies, except those that return
// addresses by value. "Local" is always the sender of the message and "remote" its receiver. All fields are big
// endian on the wire and host-order Go integers here. The package has no state.
//
// The sources are the InfiniBand Architecture Specification volume 1, chapter 12 and annexes A11 (IP addresses in
// private data), A14 (XRC) and A17 (RoCEv2), and the messages that Linux sends. The package imports the standard
// library and internal/wire.
package cmmsg
