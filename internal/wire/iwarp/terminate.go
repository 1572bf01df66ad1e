package iwarp

import (
	"errors"
	"fmt"
)

// Code is the reason of a Terminate: layer 4, error type 4, error code 8.
type Code uint16

// The reasons. The layers are RDMAP 0, DDP 1 and MPA 2.
const (
	LocalCatastrophic Code = 0x0000

	// RDMAP: the peer may not access the memory.
	ReadSTag         Code = 0x0100
	ReadBounds       Code = 0x0101
	ReadAccess       Code = 0x0102
	ReadStream       Code = 0x0103 // the STag belongs to another protection domain
	ReadWrap         Code = 0x0104
	CannotInvalidate Code = 0x0109
	ProtectionOther  Code = 0x01FF

	// RDMAP: the peer must not ask for this.
	RDMAPVersion       Code = 0x0205
	UnexpectedOpcode   Code = 0x0206
	StreamError        Code = 0x0207
	GlobalError        Code = 0x0208
	OpCannotInvalidate Code = 0x0209
	OperationOther     Code = 0x02FF

	DDPCatastrophic Code = 0x1000

	// DDP, tagged segments.
	TaggedSTag    Code = 0x1100
	TaggedBounds  Code = 0x1101
	TaggedStream  Code = 0x1102
	TaggedWrap    Code = 0x1103
	TaggedVersion Code = 0x1104

	// DDP, untagged segments.
	InvalidQN       Code = 0x1201
	NoBuffer        Code = 0x1202
	InvalidMSN      Code = 0x1203
	InvalidMO       Code = 0x1204
	TooLong         Code = 0x1205
	UntaggedVersion Code = 0x1206

	// MPA.
	MPALost         Code = 0x2001 // the TCP connection
	MPACRC          Code = 0x2002
	MPALength       Code = 0x2003 // a marker or a length
	MPAStart        Code = 0x2004 // a start-up frame
	MPACatastrophic Code = 0x2005
	MPADepths       Code = 0x2006 // the responder needs more READs at a time than the initiator answers
	MPANoRTR        Code = 0x2007 // the two sides have no first message in common
)

var codes = map[Code]string{
	LocalCatastrophic: "local catastrophic error",
	ReadSTag:          "remote protection error: invalid STag", ReadBounds: "remote protection error: out of bounds",
	ReadAccess:       "remote protection error: access rights",
	ReadStream:       "remote protection error: STag of another protection domain",
	ReadWrap:         "remote protection error: the offset wraps",
	CannotInvalidate: "remote protection error: STag cannot be invalidated",
	ProtectionOther:  "remote protection error",
	RDMAPVersion:     "remote operation error: RDMAP version",
	UnexpectedOpcode: "remote operation error: unexpected opcode",
	StreamError:      "remote operation error: catastrophic, of the stream",
	GlobalError:      "remote operation error: catastrophic, global", OperationOther: "remote operation error",
	OpCannotInvalidate: "remote operation error: STag cannot be invalidated",
	DDPCatastrophic:    "DDP: local catastrophic error",
	TaggedSTag:         "DDP: invalid STag", TaggedBounds: "DDP: out of bounds",
	TaggedStream: "DDP: STag of another protection domain", TaggedWrap: "DDP: the offset wraps",
	TaggedVersion: "DDP: version of a tagged segment",
	InvalidQN:     "DDP: invalid queue number", NoBuffer: "DDP: no receive is posted",
	InvalidMSN: "DDP: invalid message sequence number", InvalidMO: "DDP: invalid message offset",
	TooLong: "DDP: the message is longer than the receive", UntaggedVersion: "DDP: version of an untagged segment",
	MPALost: "MPA: connection lost", MPACRC: "MPA: CRC", MPALength: "MPA: length of an FPDU",
	MPAStart: "MPA: invalid start-up frame", MPACatastrophic: "MPA: local catastrophic error",
	MPADepths: "MPA: insufficient IRD", MPANoRTR: "MPA: no first message in common",
}

// Known reports whether the RFCs define the code.
func (c Code) Known() bool { return codes[c] != "" }

// Layer, Type and Number are the parts of a code.
func (c Code) Layer() uint8  { return uint8(c >> 12) }
func (c Code) Type() uint8   { return uint8(c>>8) & 15 }
func (c Code) Number() uint8 { return uint8(c) }

// String returns the reason in words.
func (c Code) String() string {
	if s := codes[c]; s != "" {
		return s
	}
	return fmt.Sprintf("layer %d, type %d, code %d", c.Layer(), c.Type(), c.Number())
}

// Bits of the third byte of a Terminate: which parts of the offending segment follow.
const (
	termLength = 0x80
	termDDP    = 0x40
	termRDMAP  = 0x20
)

// TerminateLen is the length of a Terminate's data without a segment, MaxTerminate that of the longest.
const (
	TerminateLen = 4
	MaxTerminate = TerminateLen + 2 + UntaggedLen + ReadRequestLen
)

// Terminate is the last message of a stream: why its sender ends it.
type Terminate struct {
	Code   Code
	SegLen uint16 // the length of the offending segment, in bytes; only with DDP
	DDP    []byte // its header; nil: the code is about no segment
	RDMAP  []byte // the data of the Read Request in it; nil: it was none
}

// ErrTerminate reports that a Terminate is shorter than its flags say.
var ErrTerminate = errors.New("iwarp: the Terminate is too short")

// Append appends the data of the Terminate to b.
func (t *Terminate) Append(b []byte) []byte {
	flags := byte(0)
	if t.DDP != nil {
		flags |= termLength | termDDP
	}
	if t.RDMAP != nil {
		flags |= termRDMAP
	}
	b = append(b, byte(t.Code>>8), byte(t.Code), flags, 0)
	if t.DDP != nil {
		b = be.AppendUint16(b, t.SegLen)
		b = append(b, t.DDP...)
	}
	return append(b, t.RDMAP...)
}

// ParseTerminate decodes the data of a Terminate. DDP and RDMAP of the result alias b. Kernels with siw on
// little-endian machines send the two halves of the first byte exchanged, and the flags from the lowest bit upwards;
// such a message is understood too.
func ParseTerminate(b []byte) (t Terminate, err error) {
	if len(b) < TerminateLen {
		return t, ErrTerminate
	}
	code, flags := be.Uint16(b), b[2]
	if exchanged(Code(code), flags) {
		code = uint16(b[0]<<4|b[0]>>4)<<8 | uint16(b[1])
		flags = flags&1<<7 | flags&2<<5 | flags&4<<3
	}
	t.Code = Code(code)
	b = b[TerminateLen:]
	if flags&termLength != 0 {
		if len(b) < 2 {
			return t, ErrTerminate
		}
		t.SegLen, b = be.Uint16(b), b[2:]
	}
	if flags&termDDP != 0 {
		if len(b) < TaggedLen || len(b) < Segment(b).HeaderLen() {
			return t, ErrTerminate
		}
		n := Segment(b).HeaderLen()
		t.DDP, b = b[:n], b[n:]
	}
	if flags&termRDMAP != 0 {
		if len(b) < ReadRequestLen {
			return t, ErrTerminate
		}
		t.RDMAP = b[:ReadRequestLen]
	}
	return t, nil
}

// exchanged reports whether the first bytes of a Terminate are in siw's order. Flags tell; without any, the order in
// which the code is a known one.
func exchanged(c Code, flags byte) bool {
	switch {
	case flags&0xE0 != 0:
		return false
	case flags&7 != 0:
		return true
	}
	other := Code(c.Type())<<12 | Code(c.Layer())<<8 | c&0xFF
	return !c.Known() && other.Known()
}
