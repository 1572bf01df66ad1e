package exchange

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
)

// XRCMessageLen is the size in bytes of the address message of ibv_xsrq_pingpong: LID, both QPNs, PSN, SRQ
// number and GID in hexadecimal, with colons between them and a NUL at the end.
const XRCMessageLen = len("0000:000000:000000:000000:000000:00000000000000000000000000000000") + 1

// end is the last message of each end of ibv_xsrq_pingpong, with its NUL.
var end = []byte("END\x00")

// An XRCDest is the address of an end of ibv_xsrq_pingpong. QPNs, PSN and SRQN have 24 bits.
type XRCDest struct {
	LID        uint16
	Recv, Send uint32 // the QPNs of its XRC_RECV and XRC_SEND QPs
	PSN        uint32 // the first PSN that both QPs send
	SRQN       uint32
	GID        [16]byte
}

// AppendMessage appends the message for d to b.
func (d XRCDest) AppendMessage(b []byte) []byte {
	b = fmt.Appendf(b, "%04x:%06x:%06x:%06x:%06x:", d.LID, d.Recv&0xffffff, d.Send&0xffffff, d.PSN&0xffffff,
		d.SRQN&0xffffff)
	b = hex.AppendEncode(b, d.GID[:])
	return append(b, 0)
}

// ParseXRCMessage parses one message. Like the C program it accepts hexadecimal fields of any width and
// ignores what follows the NUL.
func ParseXRCMessage(msg []byte) (XRCDest, error) {
	var d XRCDest
	text, _, _ := bytes.Cut(msg, []byte{0})
	if err := d.parse(bytes.Split(text, []byte(":"))); err != nil {
		return XRCDest{}, fmt.Errorf("the peer sent %q: %w; expected LID:RECV_QPN:SEND_QPN:PSN:SRQN:GID in hexadecimal",
			text, err)
	}
	return d, nil
}

func (d *XRCDest) parse(fields [][]byte) error {
	if len(fields) != 6 {
		return fmt.Errorf("it has %d fields", len(fields))
	}
	lid, err := strconv.ParseUint(string(fields[0]), 16, 16)
	if err != nil {
		return errors.New("LID is not a number of 16 bits")
	}
	d.LID = uint16(lid)
	for i, to := range []*uint32{&d.Recv, &d.Send, &d.PSN, &d.SRQN} {
		v, err := strconv.ParseUint(string(fields[i+1]), 16, 24)
		if err != nil {
			return fmt.Errorf("%s is not a number of 24 bits", [...]string{"RECV_QPN", "SEND_QPN", "PSN", "SRQN"}[i])
		}
		*to = uint32(v)
	}
	if len(fields[5]) != hex.EncodedLen(len(d.GID)) {
		return errors.New("the GID must have 32 digits")
	}
	if _, err := hex.Decode(d.GID[:], fields[5]); err != nil {
		return errors.New("the GID is not hexadecimal")
	}
	return nil
}

// SendXRC sends this end's address.
func (c *Conn) SendXRC(d XRCDest) error {
	if err := c.write(d.AppendMessage(nil)); err != nil {
		return fmt.Errorf("couldn't send local address: %w", err)
	}
	return nil
}

// RecvXRC receives the peer's address.
func (c *Conn) RecvXRC() (XRCDest, error) {
	var buf [XRCMessageLen]byte
	if n, err := c.read(buf[:]); err != nil {
		return XRCDest{}, fmt.Errorf("%d/%d: couldn't read remote address: %w", n, XRCMessageLen, err)
	}
	return ParseXRCMessage(buf[:])
}

// SendEnd tells the peer that this end has sent and received everything.
func (c *Conn) SendEnd() error {
	if err := c.write(end); err != nil {
		return fmt.Errorf("couldn't send termination ack: %w", err)
	}
	return nil
}

// WaitEnd waits for the peer's SendEnd.
func (c *Conn) WaitEnd() error {
	buf := make([]byte, len(end))
	if n, err := c.read(buf); err != nil {
		return fmt.Errorf("%d/%d: couldn't read remote termination ack: %w", n, len(end), err)
	}
	if !bytes.Equal(buf, end) {
		return fmt.Errorf("the peer sent %q instead of %q", buf, end)
	}
	return nil
}
