package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A ring describes the server's slots. It is the private data of the accepted connection, so the client has it before
// its first WRITE.
type ring struct {
	Magic    [4]byte // identifies this protocol and its version
	Slots    uint32
	SlotSize uint32 // bytes
	RKey     uint32
	Addr     uint64 // of slot 0
}

var magic = [4]byte{'V', 'F', 'T', '1'}

// The client creates its queues before it knows the ring, so the size of the ring has a limit.
const maxSlots, maxSlotSize = 64, 1 << 24

func (r ring) encode() []byte {
	r.Magic = magic
	b, _ := binary.Append(nil, binary.BigEndian, r) // fails only for types without a fixed size
	return b
}

// decodeRing reads private data, which always arrives at its full length, padded with zeros. It comes from the network,
// so every field is checked.
func decodeRing(b []byte) (ring, error) {
	var r ring
	if _, err := binary.Decode(b, binary.BigEndian, &r); err != nil || r.Magic != magic {
		return r, fmt.Errorf("the peer is not a filetransfer server")
	}
	if r.Slots < 2 || r.Slots > maxSlots || r.SlotSize < minSlotSize || r.SlotSize > maxSlotSize {
		return r, fmt.Errorf("the server's ring has %d slots of %d bytes: must be 2 to %d slots of %d to %d bytes",
			r.Slots, r.SlotSize, maxSlots, minSlotSize, maxSlotSize)
	}
	return r, nil
}

// slot returns the offset in the ring of a piece, counted from 0 at the beginning of the connection. No message carries
// it: the requests of a reliable connection take effect in the order in which they were posted.
func (r ring) slot(piece uint64) (offset int) { return int(piece%uint64(r.Slots)) * int(r.SlotSize) }

// The immediate value of a WRITE is the kind of the piece. The completion has its length.
const (
	pieceBegin uint32 = 1 + iota // of a file: its size, then its name
	pieceData                    // bytes of the file
	pieceEnd                     // its SHA-256
)

// A slot holds at least the first piece of a file: the size and the longest name.
const maxName, minSlotSize = 255, 8 + maxName

func encodeBegin(slot []byte, name string, size int64) int {
	binary.BigEndian.PutUint64(slot, uint64(size))
	return 8 + copy(slot[8:], name)
}

func decodeBegin(b []byte) (name string, size int64, err error) {
	if len(b) <= 8 || len(b) > 8+maxName {
		return "", 0, fmt.Errorf("the beginning of a file has %d bytes: must be 9 to %d", len(b), 8+maxName)
	}
	return string(b[8:]), int64(binary.BigEndian.Uint64(b)), nil
}

// An answer is a message of the server to the client.
type answer struct {
	credits uint32 // number of slots that are free again
	verdict byte   // about the file that the client sends
	reason  string // of a refusal
}

const (
	undecided byte = iota
	stored
	refused
)

const answerSize = 128

// encode truncates a long reason: a message longer than its receive buffer breaks the connection.
func (a answer) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, answerSize), a.credits)
	b = append(b, a.verdict)
	return append(b, a.reason[:min(len(a.reason), answerSize-len(b))]...)
}

func decodeAnswer(b []byte) (a answer, err error) {
	if len(b) < 5 {
		return a, fmt.Errorf("the server's answer has %d bytes: must be at least 5", len(b))
	}
	return answer{binary.BigEndian.Uint32(b), b[4], string(bytes.ToValidUTF8(b[5:], []byte("?")))}, nil
}
