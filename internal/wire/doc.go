// Package wire holds the formats of RoCEv2: every header as a typed []byte with
// getters and setters, the table of opcodes, the invariant CRC and the MAD header.
//
// A packet is checked once, by Parse, where it enters the process; after that no
// accessor fails, allocates or copies. All fields are big endian on the wire and
// host-order Go integers here. Nothing here keeps state: everything may be called from any goroutine.
//
//	opcode.go  what each opcode is, and where its headers are     header.go  the headers
//	packet.go  Parse and a packet's parts                         grh.go     IP headers in UD receive buffers
//	icrc.go    the invariant CRC; solve.go: its unknown part      mad.go     management datagrams
//	crc.go     its arithmetic; crc_amd64.s: 32 or 64 bytes at a time, copying them if one likes; sum.go: copies with a sum
//	fields.go  a packet as a struct, for tests and tools          format.go  a packet in words
//
// The sources are the InfiniBand Architecture Specification volume 1 (IBTA) with annexes A14 (XRC), A17 (RoCEv2)
// and A19 (FLUSH, ATOMIC WRITE), and what Linux soft-RoCE sends. The package imports the standard library and golang.org/x/sys/cpu.
package wire
