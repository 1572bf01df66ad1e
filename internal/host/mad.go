package host

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Offsets in a connection management datagram, in bytes (IBTA volume 1, chapter 12), and values of its fields.
const (
	MADClass   = 1
	MADAttr    = 16
	MADLocalID = 24 // the sender's communication ID; of a SIDR_REP the receiver's request ID
	MADPeerID  = 28 // the receiver's communication ID
	madReqSID  = 32 // service ID of a REQ and of a SIDR_REQ
	madMinimum = 40

	ClassCM     = 7
	AttrREQ     = 0x10
	AttrSIDRReq = 0x17
	AttrSIDRRep = 0x18

	attrREJ  = 0x12
	attrDREQ = 0x15
	attrDREP = 0x16

	// MADOffset is the offset of the datagram in a packet for QP 1, in bytes.
	MADOffset = wire.BTHLen + wire.DETHLen
)

// An Address is the destination of a packet: a slot or a service ID.
type Address struct {
	Service uint64
	Slot    int // -1: Service is the destination
}

// addressOf returns the address of a packet, BTH to pad. Packets for QP 1 that are not connection management have
// none: the process that receives them keeps them.
func addressOf(pkt []byte) (Address, bool) {
	if qpn := wire.BTH(pkt).DestQPN(); qpn != wire.GSIQPN {
		return Address{Slot: SlotOf(qpn)}, true
	}
	mad, ok := managementOf(pkt)
	if !ok {
		return Address{}, false
	}
	if id, ok := requested(mad); ok {
		return Address{Service: id, Slot: -1}, true
	}
	return Address{Slot: SlotOfID(recipient(mad))}, true
}

// Recipient returns the communication ID of the receiver that a packet for QP 1 has, BTH to pad. Packets other than
// connection management, and requests, have none.
func Recipient(pkt []byte) (id uint32, ok bool) {
	mad, ok := managementOf(pkt)
	if !ok {
		return 0, false
	}
	if _, request := requested(mad); request {
		return 0, false
	}
	return recipient(mad), true
}

// managementOf returns the connection management datagram of a packet for QP 1, BTH to pad.
func managementOf(pkt []byte) (mad []byte, ok bool) {
	if len(pkt) < MADOffset+madMinimum || pkt[MADOffset+MADClass] != ClassCM {
		return nil, false
	}
	return pkt[MADOffset:], true
}

// recipient returns the communication ID of the receiver in a datagram that is no request.
func recipient(mad []byte) uint32 {
	at := MADPeerID
	if binary.BigEndian.Uint16(mad[MADAttr:]) == AttrSIDRRep {
		at = MADLocalID
	}
	return binary.BigEndian.Uint32(mad[at:])
}

// requested returns the service ID of a request, a datagram of at least madMinimum bytes.
func requested(mad []byte) (id uint64, ok bool) {
	if a := binary.BigEndian.Uint16(mad[MADAttr:]); mad[MADClass] != ClassCM || a != AttrREQ && a != AttrSIDRReq {
		return 0, false
	}
	return binary.BigEndian.Uint64(mad[madReqSID:]), true
}
