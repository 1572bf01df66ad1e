package pcap

import (
	"encoding/binary"
	"runtime"
)

// Block types and options of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection   = 0x0A0D0D0A
	blockInterface = 1
	blockPacket    = 6

	byteOrderMagic = 0x1A2B3C4D

	optEnd       = 0
	optComment   = 1
	optOS        = 3 // section
	optUserAppl  = 4 // section
	optIfName    = 2
	optIfDescr   = 3
	optIfTSRes   = 9
	optFlags     = 2 // packet: direction
	optDropCount = 4 // packet: number of packets lost before it

	linkTypeRaw = 101 // packets begin with the IP header

	inbound, outbound = 1, 2
)

// order is the byte order of the file; a reader detects it by the magic number.
var order = binary.LittleEndian

// AppendSection appends the first block of a capture.
func AppendSection(b []byte) []byte {
	b, at := begin(b, blockSection)
	b = order.AppendUint32(b, byteOrderMagic)
	b = order.AppendUint16(b, 1)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint64(b, 1<<64-1) // length of the section: unknown
	b = option(b, optOS, runtime.GOOS+"/"+runtime.GOARCH)
	b = option(b, optUserAppl, "Verbena")
	return end(option(b, optEnd, ""), at)
}

// AppendInterface appends the description of an interface. Interfaces are numbered from 0 in the order of their
// descriptions. process names the process that sends and receives the packets; it may be empty.
func AppendInterface(b []byte, name, process string) []byte {
	b, at := begin(b, blockInterface)
	b = order.AppendUint16(b, linkTypeRaw)
	b = order.AppendUint16(b, 0)
	b = order.AppendUint32(b, 0) // no length limit
	b = option(b, optIfName, name)
	if process != "" {
		b = option(b, optIfDescr, process)
	}
	b = option(b, optIfTSRes, "\x09") // nanoseconds
	return end(option(b, optEnd, ""), at)
}

// SetInterface changes the interface number in a packet block.
func SetInterface(block []byte, n uint32) { order.PutUint32(block[8:], n) }

// BlockLen returns the length in bytes of the block at the beginning of b, 0 if b is too short; ok is false if it
// is not a packet block.
func BlockLen(b []byte) (n int, ok bool) {
	if len(b) < 8 {
		return 0, true
	}
	n = int(order.Uint32(b[4:]))
	return n, order.Uint32(b) == blockPacket && n >= 32 && n <= 1<<20 && n%4 == 0
}

// Valid reports whether a packet block of another process, whole by BlockLen, can be read: its packet and options are
// within it, and both lengths of the block are equal.
func Valid(b []byte) bool {
	end := len(b) - 4
	kept := int64(order.Uint32(b[20:]))
	at := blockHead + (kept+3)&^3
	if order.Uint32(b[end:]) != uint32(len(b)) || at > int64(end) {
		return false
	}
	for opts := b[at:end]; len(opts) > 0; {
		if len(opts) < 4 {
			return false
		}
		code, n := order.Uint16(opts), int(order.Uint16(opts[2:]))
		if code == optEnd {
			return n == 0 && len(opts) == 4
		}
		next := 4 + (n+3)&^3
		if next > len(opts) || code == optFlags && n != 4 || code == optDropCount && n != 8 {
			return false
		}
		opts = opts[next:]
	}
	return true
}

// blockHead is the length of a packet block before the packet, blockTail its maximum length after it, without the
// comment.
const (
	blockHead = 28
	blockTail = 3 + 4 + 3 + 8 + 12 + 4 + 4
)

// putHead writes a packet block up to the packet, which has n bytes, kept of them in the file. appendTail sets the
// block's length.
func putHead(b *[blockHead]byte, iface uint32, ns int64, kept, n int) {
	order.PutUint32(b[0:], blockPacket)
	order.PutUint32(b[8:], iface)
	order.PutUint32(b[12:], uint32(uint64(ns)>>32))
	order.PutUint32(b[16:], uint32(ns))
	order.PutUint32(b[20:], uint32(kept))
	order.PutUint32(b[24:], uint32(n))
}

// appendTail completes the block at offset at.
func appendTail(b []byte, at int, direction uint32, lost uint64, comment []byte) []byte {
	b = pad(b, at)
	if len(comment) > 0 {
		b = option(b, optComment, comment)
	}
	b = order.AppendUint64(b, optFlags|4<<16|uint64(direction)<<32)
	if lost > 0 {
		b = order.AppendUint16(b, optDropCount)
		b = order.AppendUint16(b, 8)
		b = order.AppendUint64(b, lost)
	}
	return end(order.AppendUint32(b, optEnd), at)
}

func begin(b []byte, kind uint32) ([]byte, int) {
	at := len(b)
	b = order.AppendUint32(b, kind)
	return order.AppendUint32(b, 0), at
}

// end writes the length of the block at offset at into its header and trailer.
func end(b []byte, at int) []byte {
	n := uint32(len(b) - at + 4)
	order.PutUint32(b[at+4:], n)
	return order.AppendUint32(b, n)
}

func option[T string | []byte](b []byte, code uint16, value T) []byte {
	at := len(b)
	b = order.AppendUint16(b, code)
	b = order.AppendUint16(b, uint16(len(value)))
	b = append(b, value...)
	return pad(b, at)
}

// pad pads the bytes from at on to a multiple of 4.
func pad(b []byte, at int) []byte {
	return append(b, 0, 0, 0)[:len(b)+(at-len(b))&3]
}
