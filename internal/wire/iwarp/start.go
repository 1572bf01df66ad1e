package iwarp

import (
	"encoding/binary"
	"errors"
)

var be = binary.BigEndian

// Lengths of the start-up frames, in bytes.
const (
	StartLen   = 20  // without private data
	MaxPrivate = 512 // the most private data, the 4 bytes of IRD and ORD included
	depthsLen  = 4   // IRD and ORD
)

// Revisions of MPA.
const (
	Rev1 = 1 // RFC 5044
	Rev2 = 2 // RFC 6581: with the depths of READ, and peer-to-peer
)

// MaxDepth is the largest value of IRD and ORD. DepthUnknown says that the sender does not negotiate the value.
const (
	MaxDepth     = 0x3FFE
	DepthUnknown = 0x3FFF
)

const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
)

// Bits of the flags byte and of the words of IRD and ORD.
const (
	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10

	irdPeer  = 0x8000
	irdSend  = 0x4000
	ordWrite = 0x8000
	ordRead  = 0x4000
)

// RTR is a set of ways in which the initiator of a peer-to-peer connection may send its first FPDU, which tells the
// responder that it is ready to receive. Each is a message without data.
type RTR uint8

// The first messages of a peer-to-peer connection.
const (
	RTRSend RTR = 1 << iota
	RTRWrite
	RTRRead
)

// Start is a start-up frame of MPA.
type Start struct {
	Reply   bool  // the answer of the responder
	Markers bool  // the sender wants to receive markers
	CRC     bool  // the sender wants CRCs, in both directions
	Reject  bool  // of a reply: the connection is refused
	Rev     uint8 // the revision of MPA
	// Enhanced: the frame carries IRD and ORD. The fields up to RTR are 0 without it.
	Enhanced   bool
	IRD        uint16 // the number of READs that the sender answers at a time, 0 to MaxDepth, or DepthUnknown
	ORD        uint16 // the number of READs that the sender wants to have outstanding
	PeerToPeer bool   // either side may send first, once the initiator has sent one of RTR
	RTR        RTR    // request: those that the initiator can send; reply: the one that it must send
	Private    []byte // of the user
}

// The reasons why ParseStart refuses a frame.
var (
	// ErrShort reports that bytes are missing; those present are valid.
	ErrShort   = errors.New("iwarp: the frame is incomplete")
	ErrKey     = errors.New("iwarp: the frame does not begin with the key of MPA")
	ErrPrivate = errors.New("iwarp: the private data of the start-up frame are too long")
	ErrDepths  = errors.New("iwarp: the enhanced start-up frame is too short for IRD and ORD")
)

// ParseStart decodes the start-up frame at the beginning of b, and returns its length. reply selects which of the two
// frames is expected. It refuses a frame at its first wrong byte, and returns ErrShort as long as b may still become
// one. The result's Private aliases b.
func ParseStart(b []byte, reply bool) (s Start, n int, err error) {
	key := keyRequest
	if reply {
		key = keyReply
	}
	if have := min(len(b), len(key)); string(b[:have]) != key[:have] {
		return s, 0, ErrKey
	}
	if len(b) < StartLen {
		return s, 0, ErrShort
	}
	flags, private := b[16], int(be.Uint16(b[18:]))
	s = Start{
		Reply: reply, Rev: b[17], Markers: flags&flagMarkers != 0, CRC: flags&flagCRC != 0,
		Reject: reply && flags&flagReject != 0, Enhanced: flags&flagEnhanced != 0 && b[17] >= Rev2,
	}
	switch n = StartLen + private; {
	case private > MaxPrivate:
		return Start{}, 0, ErrPrivate
	case s.Enhanced && private < depthsLen:
		return Start{}, 0, ErrDepths
	case len(b) < n:
		return Start{}, 0, ErrShort
	}
	s.Private = b[StartLen:n]
	if s.Enhanced {
		s.setDepths(be.Uint16(s.Private), be.Uint16(s.Private[2:]))
		s.Private = s.Private[depthsLen:]
	}
	return s, n, nil
}

func (s *Start) setDepths(ird, ord uint16) {
	s.IRD, s.ORD = ird&0x3FFF, ord&0x3FFF
	s.PeerToPeer = ird&irdPeer != 0
	for _, x := range []struct {
		set bool
		rtr RTR
	}{{ird&irdSend != 0, RTRSend}, {ord&ordWrite != 0, RTRWrite}, {ord&ordRead != 0, RTRRead}} {
		if x.set {
			s.RTR |= x.rtr
		}
	}
}

// Append appends the frame to b. The private data must fit: MaxPrivate bytes, 4 less in an enhanced frame.
func (s *Start) Append(b []byte) []byte {
	key, private := keyRequest, len(s.Private)
	if s.Reply {
		key = keyReply
	}
	if s.Enhanced {
		private += depthsLen
	}
	if private > MaxPrivate {
		panic("iwarp: Start.Append: too much private data")
	}
	b = append(b, key...)
	b = append(b, s.flags(), s.Rev)
	b = be.AppendUint16(b, uint16(private))
	if s.Enhanced {
		ird, ord := s.depths()
		b = be.AppendUint16(b, ird)
		b = be.AppendUint16(b, ord)
	}
	return append(b, s.Private...)
}

func (s *Start) flags() (f byte) {
	for _, x := range []struct {
		set bool
		bit byte
	}{{s.Markers, flagMarkers}, {s.CRC, flagCRC}, {s.Reject, flagReject}, {s.Enhanced, flagEnhanced}} {
		if x.set {
			f |= x.bit
		}
	}
	return f
}

func (s *Start) depths() (ird, ord uint16) {
	ird, ord = s.IRD&0x3FFF, s.ORD&0x3FFF
	if s.PeerToPeer {
		ird |= irdPeer
	}
	if s.RTR&RTRSend != 0 {
		ird |= irdSend
	}
	if s.RTR&RTRWrite != 0 {
		ord |= ordWrite
	}
	if s.RTR&RTRRead != 0 {
		ord |= ordRead
	}
	return ird, ord
}
