// Package wire holds the formats of RoCEv2: every header as a typed []byte with
// getters and setters, the table of opcodes, the invariant CRC and the MAD header.
//
// A packet is checked once, by Parse, where it enters the process; after that no
// accessor fails, allocates or copies. All fields are big endian on the wire and
// host-order Go integers here. The package imports the standard library only.
package wire
