package explain

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// mostBlock is the longest block of a pcapng file, bytes. The longest packet has 65,535.
const mostBlock = 1 << 20

// checked passes a pcapng file on as long as its lengths make sense: who reads it makes room for what a block says of itself.
type checked struct {
	r     *bufio.Reader
	order binary.ByteOrder // of the section
	at    int64            // where the block begins
	left  uint32           // of the block
}

// Read reads the file up to the first block that is not to be read, whose place is in the error.
func (c *checked) Read(b []byte) (int, error) {
	if c.left == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(b[:min(len(b), int(c.left))])
	c.left -= uint32(n)
	c.at += int64(n)
	return n, err
}

// next looks at the head of a block, and at what a packet's says of the packet.
func (c *checked) next() error {
	const section, packet, headLen, packetLen = pcapngMagic, 6, 12, 28
	head, err := c.r.Peek(headLen)
	if err != nil {
		c.left = uint32(len(head)) // too short to be one: the reader sees to it
		if c.left == 0 {
			return io.EOF
		}
		return nil
	}
	if binary.LittleEndian.Uint32(head) == section {
		c.order = binary.LittleEndian
		if binary.BigEndian.Uint32(head[8:]) == 0x1A2B3C4D {
			c.order = binary.BigEndian
		}
	}
	c.left = c.order.Uint32(head[4:])
	if c.left < headLen || c.left%4 != 0 || c.left > mostBlock {
		return fmt.Errorf("a block of %d bytes at byte %d of the file; 12 to %d are possible", c.left, c.at, mostBlock)
	}
	if c.order.Uint32(head) != packet {
		return nil
	}
	if ifi := c.order.Uint32(head[8:]); ifi > math.MaxInt32 { // the reader takes it for an int
		return fmt.Errorf("a packet of interface %d at byte %d of the file", ifi, c.at)
	}
	if head, err = c.r.Peek(packetLen); err == nil && uint64(c.order.Uint32(head[20:]))+packetLen+4 > uint64(c.left) {
		return fmt.Errorf("a packet of %d bytes in a block of %d at byte %d of the file", c.order.Uint32(head[20:]), c.left, c.at)
	}
	return nil
}
