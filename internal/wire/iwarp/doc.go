// Package iwarp holds the formats of iWARP, RDMA over a TCP stream: the start-up frames and the framing of MPA, the
// segments of DDP, and the messages of RDMAP with the atomic operations and immediate data of RFC 7306.
//
//	TCP stream: start-up frame each way, then FPDUs
//	FPDU:       length 16 | ULPDU | pad 0 to 3 | CRC 32
//	ULPDU:      one DDP segment: control 16 | tagged: STag 32, TO 64
//	                                        | untagged: STag to invalidate 32, QN 32, MSN 32, MO 32 | payload
//
//	start.go      the start-up frames             opcode.go     the operations and where they belong
//	fpdu.go       FPDUs and their CRC             message.go    what Read Requests and atomics carry
//	segment.go    DDP segments                    terminate.go  Terminate and its error codes
//	format.go     segments as text
//
// A segment is a typed []byte with getters; Check accepts it once, and after that no getter fails, allocates or
// copies. Frames that a connection has once are structs. All fields are big endian on the wire, except the CRC, and
// host-order Go integers here. Markers are not supported: no peer may ask for them. The package has no state: all
// functions are safe for concurrent use.
//
// The sources are RFC 5040 (RDMAP), 5041 (DDP), 5044 (MPA), 6581 (the enhanced start-up) and 7306, and the streams
// that the kernel's siw sends. The package imports the standard library and internal/wire/fold.
package iwarp
