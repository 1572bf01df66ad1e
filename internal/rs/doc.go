// Package rs is the protocol of rsockets: what librdmacm's rsocket puts on the wire, and when. It has no goroutine, no clock and no
// device: a Stream is told what was asked of it and what has come, and says what to post.
//
// A stream is a ring of memory at the receiver that the sender fills with RDMA WRITEs. Each WRITE carries a message word as its
// immediate data. The receiver hands its ring out in halves, by writing their addresses into a table at the sender, and bounds the
// messages under way by credits, so that neither the ring nor the queue of receives is ever overrun.
//
// The package imports the standard library and golang.org/x only.
package rs
