package wire

import "encoding/binary"

// Lengths of the headers, in bytes.
const (
	BTHLen       = 12
	DETHLen      = 8
	RETHLen      = 16
	AtomicETHLen = 28
	AETHLen      = 4
	AtomicAckLen = 8
	ImmLen       = 4
	IETHLen      = 4
	FETHLen      = 4
	XRCETHLen    = 4
	ICRCLen      = 4
	GRHLen       = 40

	AtomicWriteLen = 8  // the payload of an ATOMIC WRITE
	CNPReserved    = 16 // the zero bytes behind the BTH of a CNP
)

// Port is the UDP destination port of RoCEv2.
const Port = 4791

// RoCEv2Headers is the room for IP, UDP and RoCEv2 headers in the MTU of an interface or a route, in bytes: a path MTU
// fits if its payload and these do (Linux: RXE_MAX_HDR_LENGTH).
const RoCEv2Headers = 80

// FittingMTU returns the largest path MTU of 256, 512 and so on up to most whose packets fit in room, the MTU of an
// interface or a route, all in bytes; 256 also where that does not fit.
func FittingMTU(most, room int) int {
	for most > 256 && most+RoCEv2Headers > room {
		most /= 2
	}
	return most
}

// Well-known numbers.
const (
	MulticastQPN = 0xFFFFFF   // the destination QPN of multicast packets
	GSIQPN       = 1          // the QP of the general services interface, where CM datagrams go
	GSIQKey      = 0x80010000 // its Q_Key
	DefaultPKey  = 0xFFFF     // the default partition, full member
)

var be = binary.BigEndian

// BTH is the base transport header, 12 bytes: opcode 8; SE 1, M 1, pad 2, TVer 4; P_Key 16;
// FECN 1, BECN 1, reserved 6; destination QPN 24; A 1, reserved 7; PSN 24.
type BTH []byte

// Opcode is byte 0.
func (h BTH) Opcode() Opcode { return Opcode(h[0]) }

// Solicited is the SE bit: the message's completion at the receiver is a solicited one.
func (h BTH) Solicited() bool { return h[1]&0x80 != 0 }

// MigReq is the M bit, for automatic path migration.
func (h BTH) MigReq() bool { return h[1]&0x40 != 0 }

// Pad counts the zero bytes after the payload, 0 to 3.
func (h BTH) Pad() int { return int(h[1] >> 4 & 3) }

// Version is TVer; it must be 0.
func (h BTH) Version() uint8 { return h[1] & 15 }

// PKey is the partition key.
func (h BTH) PKey() uint16 { return be.Uint16(h[2:]) }

// SetPKey changes the P_Key.
func (h BTH) SetPKey(pkey uint16) { be.PutUint16(h[2:], pkey) }

// FECN reports congestion on the packet's way.
func (h BTH) FECN() bool { return h[4]&0x80 != 0 }

// BECN reports congestion to the sender.
func (h BTH) BECN() bool { return h[4]&0x40 != 0 }

// SetBECN sets the BECN bit.
func (h BTH) SetBECN() { h[4] |= 0x40 }

// DestQPN is the destination queue pair, 24 bits.
func (h BTH) DestQPN() uint32 { return be.Uint32(h[4:]) & 0xFFFFFF }

// AckReq asks the responder for an acknowledgement.
func (h BTH) AckReq() bool { return h[8]&0x80 != 0 }

// PSN is the packet sequence number, 24 bits.
func (h BTH) PSN() uint32 { return be.Uint32(h[8:]) & 0xFFFFFF }

// Bits of a BTH that Put sets as they are.
const (
	BTHSolicited = 1 << 31 // in the flags argument of Put: the SE bit
	BTHMigReq    = 1 << 30 // the M bit
	BTHAckReq    = 1 << 0  // the A bit
)

// Put writes the whole header. pad is the number of pad bytes (0 to 3); flags is any of BTHSolicited, BTHMigReq and
// BTHAckReq.
func (h BTH) Put(op Opcode, pad int, pkey uint16, qpn, psn, flags uint32) {
	_ = h[11]
	h[0] = byte(op)
	h[1] = byte(flags>>24)&0xC0 | byte(pad&3)<<4
	be.PutUint16(h[2:], pkey)
	be.PutUint32(h[4:], qpn&0xFFFFFF)
	be.PutUint32(h[8:], psn&0xFFFFFF|flags<<31)
}

// SetPSN changes the packet sequence number.
func (h BTH) SetPSN(psn uint32) { be.PutUint32(h[8:], be.Uint32(h[8:])&^0xFFFFFF|psn&0xFFFFFF) }

// DETH is the datagram extended header, 8 bytes: Q_Key 32; reserved 8; source QPN 24.
type DETH []byte

// QKey is the queue key that the receiver checks.
func (h DETH) QKey() uint32 { return be.Uint32(h) }

// SrcQPN is the sender's queue pair, 24 bits.
func (h DETH) SrcQPN() uint32 { return be.Uint32(h[4:]) & 0xFFFFFF }

// Put writes the whole header.
func (h DETH) Put(qkey, srcQPN uint32) {
	be.PutUint32(h, qkey)
	be.PutUint32(h[4:], srcQPN&0xFFFFFF)
}

// RETH is the RDMA extended header, 16 bytes: address 64; R_Key 32; length 32.
type RETH []byte

// Addr is the remote virtual address.
func (h RETH) Addr() uint64 { return be.Uint64(h) }

// RKey is the remote key.
func (h RETH) RKey() uint32 { return be.Uint32(h[8:]) }

// DMALen is the length of the whole message, bytes.
func (h RETH) DMALen() uint32 { return be.Uint32(h[12:]) }

// Put writes the whole header.
func (h RETH) Put(addr uint64, rkey, length uint32) {
	be.PutUint64(h, addr)
	be.PutUint32(h[8:], rkey)
	be.PutUint32(h[12:], length)
}

// AtomicETH is the atomic extended header, 28 bytes: address 64; R_Key 32; swap or add 64; compare 64.
type AtomicETH []byte

// Addr is the remote virtual address, which must be a multiple of 8.
func (h AtomicETH) Addr() uint64 { return be.Uint64(h) }

// RKey is the remote key.
func (h AtomicETH) RKey() uint32 { return be.Uint32(h[8:]) }

// SwapAdd is the value to store (compare and swap) or to add (fetch and add).
func (h AtomicETH) SwapAdd() uint64 { return be.Uint64(h[12:]) }

// Compare is the value to compare with.
func (h AtomicETH) Compare() uint64 { return be.Uint64(h[20:]) }

// Put writes the whole header.
func (h AtomicETH) Put(addr uint64, rkey uint32, swapAdd, compare uint64) {
	be.PutUint64(h, addr)
	be.PutUint32(h[8:], rkey)
	be.PutUint64(h[12:], swapAdd)
	be.PutUint64(h[20:], compare)
}

// AETH is the ACK extended header, 4 bytes: syndrome 8; MSN 24.
type AETH []byte

// Syndromes of an AETH: the upper three bits are the kind, the lower five its detail.
const (
	SynAck        = 0x1F // ACK, no credit limit
	SynRNR        = 0x20 // RNR NAK; lower bits: timer code
	SynSeqErr     = 0x60 // NAK: PSN sequence error
	SynInvReq     = 0x61 // NAK: invalid request
	SynAccess     = 0x62 // NAK: remote access error
	SynOpErr      = 0x63 // NAK: remote operational error
	SynInvRD      = 0x64 // NAK: invalid RD request
	synKindMask   = 0xE0
	synDetailMask = 0x1F
)

// Syndrome is the first byte.
func (h AETH) Syndrome() uint8 { return h[0] }

// IsAck reports whether the syndrome is a positive acknowledgement.
func (h AETH) IsAck() bool { return h[0]&synKindMask == 0 }

// IsRNR reports whether the syndrome is an RNR NAK; Timer is then its timer code.
func (h AETH) IsRNR() bool { return h[0]&synKindMask == SynRNR }

// Timer is the code of an RNR NAK, 0 to 31.
func (h AETH) Timer() uint8 { return h[0] & synDetailMask }

// MSN is the responder's message sequence number, 24 bits.
func (h AETH) MSN() uint32 { return be.Uint32(h) & 0xFFFFFF }

// Put writes the whole header.
func (h AETH) Put(syndrome uint8, msn uint32) { be.PutUint32(h, uint32(syndrome)<<24|msn&0xFFFFFF) }

// XRCETH is the XRC extended header, 4 bytes: reserved 8; number of the XRC shared receive queue 24.
type XRCETH []byte

// SRQN is the number of the shared receive queue, 24 bits.
func (h XRCETH) SRQN() uint32 { return be.Uint32(h) & 0xFFFFFF }

// Put writes the whole header.
func (h XRCETH) Put(srqn uint32) { be.PutUint32(h, srqn&0xFFFFFF) }

// FETH is the flush extended header, 4 bytes: reserved 26; selectivity level 2; placement type 4.
type FETH []byte

// The request of a FLUSH: bits of the placement type, in any combination.
const (
	FlushGlobal     = 1 // the data is visible to everybody
	FlushPersistent = 2 // the data survives a power failure
)

// The extent of a FLUSH: values of the selectivity level.
const (
	FlushRange = 0 // the bytes of the RETH
	FlushMR    = 1 // the whole memory region; address and length of the RETH are ignored
)

// Placement is the placement type, 4 bits.
func (h FETH) Placement() uint8 { return h[3] & 15 }

// Selectivity is the selectivity level, 2 bits.
func (h FETH) Selectivity() uint8 { return h[3] >> 4 & 3 }

// Put writes the whole header.
func (h FETH) Put(placement, selectivity uint8) {
	be.PutUint32(h, uint32(selectivity&3)<<4|uint32(placement&15))
}
