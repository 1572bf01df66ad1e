// Package exchange is the connection set-up of the ibv_*_pingpong programs: a TCP connection over which
// each end sends one line of text for each queue pair, and the client finally sends "done".
//
// The format is that of the C programs of rdma-core, so either end may be one. The package imports internal/lookup and
// internal/winsock.
package exchange

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
)

// MessageLen is the size of one message in bytes: LID, QPN, PSN and GID in hexadecimal,
// with colons between them and a NUL at the end.
const MessageLen = len("0000:000000:000000:00000000000000000000000000000000") + 1

// A Dest is the address of a queue pair.
type Dest struct {
	LID uint16
	QPN uint32 // 24 bits
	PSN uint32 // 24 bits: the first PSN that this end sends
	GID [16]byte
}

// AppendMessage appends the message for d to b.
func (d Dest) AppendMessage(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:", d.LID, d.QPN&0xffffff, d.PSN&0xffffff)
	b = hex.AppendEncode(b, d.GID[:])
	return append(b, 0)
}

// ParseMessage parses one message. Like the C programs it accepts hexadecimal fields of any width and
// ignores what follows the NUL.
func ParseMessage(msg []byte) (Dest, error) {
	text, _, _ := bytes.Cut(msg, []byte{0})
	bad := func(what string) (Dest, error) {
		return Dest{}, fmt.Errorf("the peer sent %q: %s; expected LID:QPN:PSN:GID in hexadecimal", text, what)
	}
	fields := bytes.Split(text, []byte(":"))
	if len(fields) != 4 {
		return bad(fmt.Sprintf("it has %d fields", len(fields)))
	}
	var d Dest
	for i, f := range []struct {
		name string
		bits int
	}{{"LID", 16}, {"QPN", 24}, {"PSN", 24}} {
		v, err := strconv.ParseUint(string(fields[i]), 16, f.bits)
		if err != nil {
			return bad(fmt.Sprintf("%s is not a number of %d bits", f.name, f.bits))
		}
		switch i {
		case 0:
			d.LID = uint16(v)
		case 1:
			d.QPN = uint32(v)
		case 2:
			d.PSN = uint32(v)
		}
	}
	if len(fields[3]) != hex.EncodedLen(len(d.GID)) {
		return bad("the GID must have 32 digits")
	}
	if _, err := hex.Decode(d.GID[:], fields[3]); err != nil {
		return bad("the GID is not hexadecimal")
	}
	return d, nil
}
