// Package wire holds the formats of RoCEv2: every header as a typed []byte with getters and setters, the table of
// opcodes, the invariant CRC and the MAD header.
//
// Parse checks a packet once, where it enters the process; after that no accessor fails, allocates or copies. All
// fields are big endian on the wire and host-order Go integers here. The package has no state: all functions are
// safe for concurrent use.
//
//	opcode.go  the opcodes and their headers                      header.go  the headers
//	packet.go  Parse, and the parts of a packet                    grh.go     IP headers in UD receive buffers
//	icrc.go    the invariant CRC; solve.go: its unknown part      mad.go     management datagrams
//	crc.go     CRC arithmetic, with package fold                  sum.go    copies with a CRC
//	fields.go  a packet as a struct, for tests and tools          format.go  a packet as text
//
// The sources are the InfiniBand Architecture Specification volume 1 (IBTA) with annexes A14 (XRC), A17 (RoCEv2)
// and A19 (FLUSH, ATOMIC WRITE), and the packets that Linux soft-RoCE sends. The package imports the standard
// library and internal/wire/fold.
package wire
