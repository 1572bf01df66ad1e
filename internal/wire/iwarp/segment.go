package iwarp

import "errors"

// Lengths of DDP's headers, in bytes.
const (
	ControlLen  = 2
	TaggedLen   = 14
	UntaggedLen = 18
)

// Version is the only version of DDP and of RDMAP.
const Version = 1

// ErrLength reports a length that no ULPDU has: it is shorter than a tagged DDP header or longer than MaxULPDU.
var ErrLength = errors.New("iwarp: no ULPDU has this length")

// Segment is a DDP segment, the content of one FPDU. Byte 0: T 1, L 1, reserved 4, DDP version 2. Byte 1: RDMAP
// version 2, reserved 2, opcode 4.
type Segment []byte

// Tagged is the T bit: the segment names its place in the receiver's memory. An untagged segment belongs to a message
// of a queue.
func (s Segment) Tagged() bool { return s[0]&0x80 != 0 }

// Last is the L bit: the segment is the last one of its message.
func (s Segment) Last() bool { return s[0]&0x40 != 0 }

// DDPVersion must be Version.
func (s Segment) DDPVersion() uint8 { return s[0] & 3 }

// RDMAPVersion must be Version.
func (s Segment) RDMAPVersion() uint8 { return s[1] >> 6 }

// Opcode is RDMAP's operation.
func (s Segment) Opcode() Opcode { return Opcode(s[1] & 15) }

// STag names the memory of a tagged segment.
func (s Segment) STag() uint32 { return be.Uint32(s[2:]) }

// TO is the tagged offset: where in that memory the segment's payload belongs.
func (s Segment) TO() uint64 { return be.Uint64(s[6:]) }

// InvSTag is the STag that an untagged Send with Invalidate invalidates.
func (s Segment) InvSTag() uint32 { return be.Uint32(s[2:]) }

// QN is the number of an untagged segment's queue.
func (s Segment) QN() uint32 { return be.Uint32(s[6:]) }

// MSN is the number of its message in that queue. The first is 1.
func (s Segment) MSN() uint32 { return be.Uint32(s[10:]) }

// MO is the offset of its payload in the message, in bytes.
func (s Segment) MO() uint32 { return be.Uint32(s[14:]) }

// HeaderLen returns the length of the segment's header from its first byte.
func (s Segment) HeaderLen() int {
	if s.Tagged() {
		return TaggedLen
	}
	return UntaggedLen
}

// Header returns the header.
func (s Segment) Header() []byte { return s[:s.HeaderLen()] }

// Payload returns what follows the header.
func (s Segment) Payload() []byte { return s[s.HeaderLen():] }

// Check reports whether the header of a segment is well-formed: versions, operation, form and queue. n is the length
// of the whole segment in bytes; s holds at least as much of it as the header has. Otherwise code is what a Terminate
// reports.
func Check(s Segment, n int) (code Code, ok bool) {
	tagged := s.Tagged()
	switch {
	case n < s.HeaderLen():
		return MPALength, false
	case s.DDPVersion() != Version && tagged:
		return TaggedVersion, false
	case s.DDPVersion() != Version:
		return UntaggedVersion, false
	case s.RDMAPVersion() != Version:
		return RDMAPVersion, false
	}
	in := s.Opcode().Info()
	switch {
	case !tagged && s.QN() >= Queues:
		return InvalidQN, false
	case in == nil || in.Tagged != tagged:
		return UnexpectedOpcode, false
	case !tagged && s.QN() != in.Queue:
		return InvalidQN, false
	}
	return 0, true
}

func control(b []byte, tagged, last bool, op Opcode) {
	b[0] = Version
	if tagged {
		b[0] |= 0x80
	}
	if last {
		b[0] |= 0x40
	}
	b[1] = Version<<6 | byte(op)
}

// PutTagged writes the 14 bytes of a tagged header.
func PutTagged(b []byte, op Opcode, last bool, stag uint32, to uint64) {
	_ = b[TaggedLen-1]
	control(b, true, last, op)
	be.PutUint32(b[2:], stag)
	be.PutUint64(b[6:], to)
}

// PutUntagged writes the 18 bytes of an untagged header. inv is 0, or the STag to invalidate. The queue is the
// operation's.
func PutUntagged(b []byte, op Opcode, last bool, inv, msn, mo uint32) {
	_ = b[UntaggedLen-1]
	control(b, false, last, op)
	be.PutUint32(b[2:], inv)
	be.PutUint32(b[6:], infos[op].Queue)
	be.PutUint32(b[10:], msn)
	be.PutUint32(b[14:], mo)
}
