package link

// Raw is a link of Ethernet frames, from the destination address to the end of the data, without the frame check
// sequence. Each link package with raw frames has its own function to open one.
type Raw interface {
	// Start starts receiving: receive is called for each frame, by one goroutine at a time. It must not keep the
	// frame or send. verified reports that the network guarantees the frame's checksums, which may then be
	// unfilled.
	Start(receive func(frame []byte, verified bool))
	// Send transmits a frame and does not keep it. An error reports that the network did not take it. It is safe
	// for concurrent use.
	Send(frame []byte) error
	// MTU returns the length of the longest frame in bytes, without a VLAN tag, as the network is now. It is slow.
	MTU() int
	// Close ends the link. No frame is received after it has returned.
	Close() error
}
