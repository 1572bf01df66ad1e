package link

// Raw is a link of Ethernet frames, from the destination address to the end of the data, without the frame check sequence.
// Each link package that has one has its own way to open it.
type Raw interface {
	// Start lets frames come: receive gets each, by one goroutine at a time, and does not keep it. It must not send.
	// verified says that the network vouches for the checksums of the frame, which then need not be filled in.
	Start(receive func(frame []byte, verified bool))
	// Send transmits a frame, which it does not keep. An error means that the network did not take it. Any number of goroutines
	// may call it.
	Send(frame []byte) error
	// MTU is the longest frame in bytes, a VLAN tag not counted.
	MTU() int
	// Close ends the link. No frame is received once it has returned.
	Close() error
}
