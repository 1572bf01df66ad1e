package explain

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

const (
	// mostBlock is the longest accepted block of a pcapng file in bytes. The longest packet has 65,535.
	mostBlock = 1 << 20
	// mostInterfaces is the largest accepted number of interfaces of a section: pcapgo keeps 800 bytes for each, and
	// a block of one may have 20.
	mostInterfaces = 1 << 16
)

// checked passes a pcapng file on while its lengths, and the number of its interfaces, are plausible: pcapgo allocates
// as much memory as a block claims to need.
type checked struct {
	r     *bufio.Reader
	order binary.ByteOrder // byte order of the section
	at    int64            // offset of the block in the file
	left  uint32           // bytes of the block not yet read
	ifs   int              // interfaces of the section
}

// Read reads the file up to the first invalid block. The error has its offset.
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

// next checks the header of a block, and the lengths in a packet block.
func (c *checked) next() error {
	const section, iface, packet, headLen, packetLen = pcapngMagic, 1, 6, 12, 28
	head, err := c.r.Peek(headLen)
	if err != nil {
		c.left = uint32(len(head)) // shorter than a header: pcapgo reports it
		if c.left == 0 {
			return io.EOF
		}
		return nil
	}
	if binary.LittleEndian.Uint32(head) == section {
		c.order, c.ifs = binary.LittleEndian, 0
		if binary.BigEndian.Uint32(head[8:]) == 0x1A2B3C4D {
			c.order = binary.BigEndian
		}
	}
	c.left = c.order.Uint32(head[4:])
	if c.left < headLen || c.left%4 != 0 || c.left > mostBlock {
		return fmt.Errorf("a block of %d bytes at byte %d of the file: must be 12 to %d", c.left, c.at, mostBlock)
	}
	switch c.order.Uint32(head) {
	case iface:
		if c.ifs++; c.ifs > mostInterfaces {
			return fmt.Errorf("more than %d interfaces at byte %d of the file", mostInterfaces, c.at)
		}
		return nil
	case packet:
	default:
		return nil
	}
	if ifi := c.order.Uint32(head[8:]); ifi > math.MaxInt32 { // pcapgo converts it to an int
		return fmt.Errorf("a packet of interface %d at byte %d of the file", ifi, c.at)
	}
	if head, err = c.r.Peek(packetLen); err == nil && uint64(c.order.Uint32(head[20:]))+packetLen+4 > uint64(c.left) {
		return fmt.Errorf("a packet of %d bytes in a block of %d at byte %d of the file", c.order.Uint32(head[20:]), c.left,
			c.at)
	}
	return nil
}
