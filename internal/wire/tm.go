package wire

import "encoding/binary"

// The headers of tag matching are the first bytes of a SEND's payload (infiniband/tm_types.h). The transport does
// not use them; only a shared receive queue with tag matching does.
//
//	eager request       TMH | payload
//	rendezvous request  TMH | RVH | data of the program
//	rendezvous response TMH

// Lengths of the headers in bytes.
const (
	TMHLen = 16
	RVHLen = 16
)

// Operations of a TMH (enum ibv_tmh_op).
const (
	TMNoTag = 0 // takes no part in matching
	TMRndv  = 1 // asks the receiver to READ the message
	TMFin   = 2 // the message was read
	TMEager = 3 // the message follows
)

// TMH is a tag matching header (struct ibv_tmh).
type TMH []byte

// Op is the operation, AppCtx the value that the sender's program added, and Tag the tag.
func (h TMH) Op() uint8      { return h[0] }
func (h TMH) AppCtx() uint32 { return binary.BigEndian.Uint32(h[4:]) }
func (h TMH) Tag() uint64    { return binary.BigEndian.Uint64(h[8:]) }

// Put writes the header.
func (h TMH) Put(op uint8, appCtx uint32, tag uint64) {
	binary.BigEndian.PutUint32(h, uint32(op)<<24)
	binary.BigEndian.PutUint32(h[4:], appCtx)
	binary.BigEndian.PutUint64(h[8:], tag)
}

// RVH is a rendezvous header (struct ibv_rvh): the location of the message.
type RVH []byte

// Addr, RKey and Length are the location in the sender's memory.
func (h RVH) Addr() uint64   { return binary.BigEndian.Uint64(h) }
func (h RVH) RKey() uint32   { return binary.BigEndian.Uint32(h[8:]) }
func (h RVH) Length() uint32 { return binary.BigEndian.Uint32(h[12:]) }

// Put writes the header.
func (h RVH) Put(addr uint64, rkey, length uint32) {
	binary.BigEndian.PutUint64(h, addr)
	binary.BigEndian.PutUint32(h[8:], rkey)
	binary.BigEndian.PutUint32(h[12:], length)
}
