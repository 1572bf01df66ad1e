// Package rs is the wire protocol of librdmacm's rsockets. It has no goroutine, no clock and no
// device: the caller passes requests and received messages to a Stream, which returns the work requests to post.
//
// A stream is a ring of memory at the receiver that the sender fills by RDMA WRITEs. Each WRITE carries a message
// word as its immediate data. The receiver grants its ring in halves, by writing their addresses into a table at
// the sender, and bounds the messages in flight by credits, so that neither the ring nor the receive queue
// overflows.
//
// The package imports the standard library only.
package rs
