package umad

import (
	"net/netip"

	"github.com/verbena-rdma/verbena/internal/wire"
)

// Size is the length of every MAD in bytes, DataSize the length of the data behind its header.
const (
	Size     = wire.MADLen
	DataSize = wire.MADLen - wire.MADHeaderLen
)

// QPN and QKey are those of the queue pairs that exchange MADs.
const (
	QPN  = wire.GSIQPN
	QKey = wire.GSIQKey
)

// A MAD is a management datagram of Size bytes, with a getter for each field of its header, and Data for the bytes
// behind it (umad_get_mad and mad_get_field).
type MAD = wire.MAD

// A Header is the header of a MAD: MAD.Header reads it, MAD.Put writes it (mad_encode). Its fields: Class,
// ClassVersion, Method (with the response bit), all uint8; Status, ClassSpecific, AttrID, uint16; AttrMod, uint32;
// TID, uint64, which Agent.Call chooses.
type Header = wire.MADHeader

// Parse checks that b is a MAD: its length and base version. The result refers to b. It has no C twin.
func Parse(b []byte) (MAD, error) { return wire.ParseMAD(b) }

// New returns a MAD with a header and a copy of the first DataSize bytes of data. It has no C twin.
func New(h Header, data []byte) MAD {
	m := make(MAD, Size)
	m.Put(h)
	copy(m.Data(), data)
	return m
}

// Management classes (IBTA volume 1, 13.4.4).
const (
	ClassSubnAdm = wire.ClassSubnAdm
	ClassPerf    = wire.ClassPerf
	ClassDevMgt  = wire.ClassDevMgt
	ClassCM      = wire.ClassCM
)

// Methods (IBTA volume 1, 13.4.5).
const (
	MethodGet      = wire.MethodGet
	MethodSet      = wire.MethodSet
	MethodSend     = wire.MethodSend
	MethodTrap     = wire.MethodTrap
	MethodReport   = wire.MethodReport
	MethodResponse = wire.MethodResponse // the bit that is set in answers
	MethodGetResp  = wire.MethodGetResp
)

// AttrClassPortInfo is the attribute that every class has.
const AttrClassPortInfo = wire.AttrClassPortInfo

// An Address is the destination or the source of a MAD (ib_mad_addr_t).
type Address struct {
	Local  netip.Addr // of this device; both are IPv4 or both IPv6
	Remote netip.Addr

	QPN       uint32 // the remote QP, 24 bits; 0 means QPN
	QKey      uint32 // of a destination; 0 means QKey
	TClass    uint8
	HopLimit  uint8  // 0 means 64
	FlowLabel uint32 // 20 bits
	PKeyIndex uint16 // in the P_Key table of the port of Local
}

// A Received is a MAD that has arrived. Its Address is that of the sender: From.Local is this device's address, and
// QKey is 0.
type Received struct {
	MAD  MAD
	From Address
}
