package host

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Places in a connection management datagram, bytes from its beginning (IBTA volume 1, chapter 12).
const (
	madClass   = 1
	madAttr    = 16
	madLocalID = 24 // the sender's communication ID; of a SIDR_REP the receiver's request ID
	madPeerID  = 28 // the receiver's communication ID
	madReqSID  = 32 // service ID of a REQ and of a SIDR_REQ
	madMinimum = 40

	classCM     = 7
	attrREQ     = 0x10
	attrSIDRReq = 0x17
	attrSIDRRep = 0x18
)

// Address is whom a management datagram is for: the owner of a lane or of a service.
type Address struct {
	Service uint64
	Lane    int // -1: the service counts
}

// addressOf reads it from a packet, BTH to pad. Datagrams for QP 1 others than those of connection management have none: they stay
// where they are.
func addressOf(pkt []byte) (Address, bool) {
	if qpn := wire.BTH(pkt).DestQPN(); qpn != wire.GSIQPN {
		return Address{Lane: LaneOf(qpn)}, true
	}
	const headers = wire.BTHLen + wire.DETHLen
	if len(pkt) < headers+madMinimum {
		return Address{}, false
	}
	mad := pkt[headers:]
	if mad[madClass] != classCM {
		return Address{}, false
	}
	at := madPeerID
	switch binary.BigEndian.Uint16(mad[madAttr:]) {
	case attrREQ, attrSIDRReq:
		return Address{Service: binary.BigEndian.Uint64(mad[madReqSID:]), Lane: -1}, true
	case attrSIDRRep:
		at = madLocalID
	}
	return Address{Lane: int(mad[at] >> (8 - LaneBits))}, true
}
