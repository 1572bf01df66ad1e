package socket

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/rdmacm"
)

// A struct ibv_path_data: flags, 4 reserved bytes and a path record of 64.
const (
	pathDataLen = 72
	pathBoth    = 0x2b // GMP | PRIMARY | OUTBOUND | INBOUND_REVERSE
)

// appendPath encodes a path as a struct ibv_path_data.
func appendPath(b []byte, p *rdmacm.PathRec) []byte {
	at := len(b)
	b = append(b, make([]byte, pathDataLen)...)
	binary.NativeEndian.PutUint32(b[at:], pathBoth)
	r, be := b[at+8:], binary.BigEndian
	copy(r[8:], p.DGID[:])
	copy(r[24:], p.SGID[:])
	be.PutUint16(r[40:], p.DLID)
	be.PutUint16(r[42:], p.SLID)
	be.PutUint32(r[44:], p.FlowLabel<<8|uint32(p.HopLimit))
	r[48] = p.TrafficClass
	if r[49] = p.NumbPath & 0x7f; p.Reversible {
		r[49] |= 0x80
	}
	be.PutUint16(r[50:], p.PKey)
	be.PutUint16(r[52:], uint16(p.SL&0xf))
	// MTU, rate and lifetime are exact: the selector in the upper two bits is 2.
	r[54], r[55], r[56], r[57] = 2<<6|uint8(p.MTU), 2<<6|p.Rate, 2<<6|p.PacketLifeTime, p.Preference
	return b
}
