package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A ring is what the server lends: in its answer to the connection, and so before anything is written.
type ring struct {
	Magic    [4]byte // tells this protocol and its version from others that might use the port
	Slots    uint32
	SlotSize uint32 // bytes
	RKey     uint32
	Addr     uint64 // of slot 0
}

var magic = [4]byte{'V', 'F', 'T', '1'}

// The client's queues are made before it knows the ring, so there is a limit to what it can use.
const maxSlots, maxSlotSize = 64, 1 << 24

func (r ring) encode() []byte {
	r.Magic = magic
	b, _ := binary.Append(nil, binary.BigEndian, r) // fails for types of no fixed size only
	return b
}

// decodeRing reads private data, which always arrives at its full length, the rest zero. It is from the network: nothing in it is
// believed that has not been looked at.
func decodeRing(b []byte) (ring, error) {
	var r ring
	if _, err := binary.Decode(b, binary.BigEndian, &r); err != nil || r.Magic != magic {
		return r, fmt.Errorf("the peer is no server of file transfers")
	}
	if r.Slots < 2 || r.Slots > maxSlots || r.SlotSize < minSlotSize || r.SlotSize > maxSlotSize {
		return r, fmt.Errorf("the server's ring has %d slots of %d bytes; possible are 2 to %d slots of %d to %d bytes",
			r.Slots, r.SlotSize, maxSlots, minSlotSize, maxSlotSize)
	}
	return r, nil
}

// slot is where the piece of that number goes, counted from the beginning of the connection. No message has to say it: requests
// of a reliable connection take effect in the order in which they were posted.
func (r ring) slot(piece uint64) (offset int) { return int(piece%uint64(r.Slots)) * int(r.SlotSize) }

// The immediate value of a WRITE says what the slot holds. How much that is, the completion says.
const (
	pieceBegin uint32 = 1 + iota // of a file: its size, then its name
	pieceData                    // bytes of the file
	pieceEnd                     // its SHA-256
)

// A file's name must fit behind its size.
const maxName, minSlotSize = 255, 8 + maxName

func encodeBegin(slot []byte, name string, size int64) int {
	binary.BigEndian.PutUint64(slot, uint64(size))
	return 8 + copy(slot[8:], name)
}

func decodeBegin(b []byte) (name string, size int64, err error) {
	if len(b) <= 8 || len(b) > 8+maxName {
		return "", 0, fmt.Errorf("the beginning of a file has %d bytes; it has a size of 8 bytes and a name of 1 to %d", len(b), maxName)
	}
	return string(b[8:]), int64(binary.BigEndian.Uint64(b)), nil
}

// An answer is what the server SENDs.
type answer struct {
	credits uint32 // slots that are free again
	verdict byte   // on the file that the client sends
	reason  string // of a refusal
}

const (
	undecided byte = iota
	stored
	refused
)

const answerSize = 128

// encode cuts a reason that is too long: a message longer than the receive it arrives in breaks the connection.
func (a answer) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, answerSize), a.credits)
	b = append(b, a.verdict)
	return append(b, a.reason[:min(len(a.reason), answerSize-len(b))]...)
}

func decodeAnswer(b []byte) (a answer, err error) {
	if len(b) < 5 {
		return a, fmt.Errorf("the server's answer has %d bytes; it has at least 5", len(b))
	}
	return answer{binary.BigEndian.Uint32(b), b[4], string(bytes.ToValidUTF8(b[5:], []byte("?")))}, nil
}
