package wire

// The ECN field, the lowest two bits of a traffic class or type of service (RFC 3168).
const (
	ECNMask    = 3
	ECNCapable = 2 // of the sender's packets; 1 means the same, 0 that the packet must not be marked
	ECNMarked  = 3 // congestion experienced
)
