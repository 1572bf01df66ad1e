package rs

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes in bytes.
const (
	ConnDataLen = 40 // in the private data
	SGELen      = 16
	IOMapLen    = 24
)

// TableEntries is the number of SGEs in this implementation's table, and the minimum for a peer's.
const TableEntries = 2

// TableLen returns the size in bytes of the memory that holds this side's table of SGEs followed by that of IO maps
// (W-RS-04).
func TableLen(iomaps int) int { return TableEntries*SGELen + iomaps*IOMapLen }

// Version is the protocol version.
const Version = 1

// The flags of connection data.
const (
	FlagNet   = 1 << 0 // the sender is a big-endian machine
	FlagIOMap = 1 << 1 // the sender supports IO maps
)

// ErrVersion reports connection data of another protocol or version.
var ErrVersion = errors.New("the peer does not speak version 1 of the rsocket protocol")

// SGE is a range of one side's memory, as passed to the other.
type SGE struct {
	Addr   uint64
	Key    uint32
	Length uint32
}

// IOMap is memory that the peer may write to by offset.
type IOMap struct {
	Offset uint64
	SGE
}

// ConnData is the data that each side sends in the private data of REQ and REP.
type ConnData struct {
	Flags   uint8
	Credits uint16 // DATA messages that the peer may send initially
	IOMaps  uint8  // maximum of IO maps that the peer may publish, scaled
	Table   SGE    // the table of SGEs; Length is the number of entries
	Data    SGE    // the first half of the receive buffer
}

// Append encodes the data, in network order whatever the flags are (W-RS-01).
func (d *ConnData) Append(b []byte) []byte {
	b = append(b, Version, d.Flags)
	b = binary.BigEndian.AppendUint16(b, d.Credits)
	b = append(b, 0, 0, 0, d.IOMaps)
	b = d.Table.Append(b, binary.BigEndian)
	return d.Data.Append(b, binary.BigEndian)
}

// ParseConnData decodes private data, which may be longer. It returns ErrVersion for another version.
func ParseConnData(b []byte) (d ConnData, err error) {
	if len(b) < ConnDataLen {
		return d, fmt.Errorf("%d bytes of connection data: must be %d: %w", len(b), ConnDataLen, ErrVersion)
	}
	if b[0] != Version {
		return d, fmt.Errorf("version %d: %w", b[0], ErrVersion)
	}
	d.Flags, d.Credits, d.IOMaps = b[1], binary.BigEndian.Uint16(b[2:]), b[7]
	d.Table, d.Data = ParseSGE(b[8:], binary.BigEndian), ParseSGE(b[24:], binary.BigEndian)
	if d.Table.Length < TableEntries {
		return d, fmt.Errorf("the peer's table has %d entries: must be at least %d", d.Table.Length, TableEntries)
	}
	return d, nil
}

// Order returns the byte order of the data's sender, in which its tables are written (W-RS-06).
func (d *ConnData) Order() binary.AppendByteOrder {
	if d.Flags&FlagNet != 0 {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// Append encodes an entry of the table of SGEs.
func (e *SGE) Append(b []byte, order binary.AppendByteOrder) []byte {
	b = order.AppendUint64(b, e.Addr)
	b = order.AppendUint32(b, e.Key)
	return order.AppendUint32(b, e.Length)
}

// ParseSGE decodes an entry of the table of SGEs. b has at least SGELen bytes.
func ParseSGE(b []byte, order binary.ByteOrder) SGE {
	return SGE{order.Uint64(b), order.Uint32(b[8:]), order.Uint32(b[12:])}
}

// Append encodes an entry of the table of IO maps.
func (m *IOMap) Append(b []byte, order binary.AppendByteOrder) []byte {
	b = order.AppendUint64(b, m.Offset)
	return m.SGE.Append(b, order)
}

// ParseIOMap decodes an entry of the table of IO maps. b has at least IOMapLen bytes.
func ParseIOMap(b []byte, order binary.ByteOrder) IOMap {
	return IOMap{order.Uint64(b), ParseSGE(b[8:], order)}
}

// HostFlags returns the flags of this machine.
func HostFlags() uint8 {
	if binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return FlagNet | FlagIOMap
	}
	return FlagIOMap
}
