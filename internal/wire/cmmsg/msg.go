package cmmsg

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/verbena-rdma/verbena/internal/wire"
)

var be = binary.BigEndian

// Len is the length of every message: the data of a management datagram, in bytes.
const Len = wire.MADLen - wire.MADHeaderLen

// ClassVersion is the only version of the CM class.
const ClassVersion = 2

// Kind is the kind of a message: the attribute ID of the datagram.
type Kind uint16

// The messages of connection management.
const (
	KindREQ     Kind = 0x10 // connection request
	KindMRA     Kind = 0x11 // message received: the answer takes longer
	KindREJ     Kind = 0x12 // refusal
	KindREP     Kind = 0x13 // reply to a request
	KindRTU     Kind = 0x14 // ready to use: confirms a reply
	KindDREQ    Kind = 0x15 // request to disconnect
	KindDREP    Kind = 0x16 // reply to a DREQ
	KindSIDRREQ Kind = 0x17 // asks for the QP of a service ID
	KindSIDRREP Kind = 0x18 // reply to a SIDR_REQ
	KindLAP     Kind = 0x19 // load an alternate path
	KindAPR     Kind = 0x1A // reply to a LAP
)

// kinds has the name of each kind, from KindREQ on, and the offset of its private data, which reaches to the end.
var kinds = [...]struct {
	name    string
	private int
}{
	{"REQ", 140}, {"MRA", 10}, {"REJ", 84}, {"REP", 36}, {"RTU", 8}, {"DREQ", 12}, {"DREP", 8},
	{"SIDR_REQ", 16}, {"SIDR_REP", 96}, {"LAP", 64}, {"APR", 84},
}

// Valid reports whether the kind is defined.
func (k Kind) Valid() bool { return k >= KindREQ && k <= KindAPR }

// String returns the name as IBTA writes it: "REQ", "SIDR_REP".
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("CM attribute %#x", uint16(k))
	}
	return kinds[k-KindREQ].name
}

// PrivateLen returns the length of the message's private data in bytes: REQ 92, MRA 222, REJ 148, REP 196, RTU 224,
// DREQ 220, DREP 224, SIDR_REQ 216, SIDR_REP 136, LAP 168, APR 148.
func (k Kind) PrivateLen() int {
	if !k.Valid() {
		return 0
	}
	return Len - kinds[k-KindREQ].private
}

// The reasons why Parse refuses a datagram, besides those of wire.ParseMAD.
var (
	ErrClass   = errors.New("cmmsg: the management class is not CM")
	ErrVersion = errors.New("cmmsg: the class version is not 2")
	ErrMethod  = errors.New("cmmsg: the method is not Send")
	ErrKind    = errors.New("cmmsg: unknown CM message")
)

// Msg is a whole datagram of 256 bytes, which Parse has accepted or Make has made. Its header is wire.MAD's.
type Msg []byte

// Parse checks b, the payload of a packet that came to QP 1.
func Parse(b []byte) (Msg, error) {
	m, err := wire.ParseMAD(b)
	switch {
	case err != nil:
		return nil, err
	case m.Class() != wire.ClassCM:
		return nil, ErrClass
	case m.ClassVersion() != ClassVersion:
		return nil, ErrVersion
	case m.Method() != wire.MethodSend:
		return nil, ErrMethod
	case !Kind(m.AttrID()).Valid():
		return nil, ErrKind
	}
	return Msg(m), nil
}

// Make turns b, 256 bytes, into a message of that kind with everything else zero.
func Make(b []byte, k Kind, tid uint64) Msg {
	m := b[:wire.MADLen:wire.MADLen]
	clear(m)
	wire.MAD(m).Put(wire.MADHeader{
		Class: wire.ClassCM, ClassVersion: ClassVersion, Method: wire.MethodSend, TID: tid, AttrID: uint16(k),
	})
	return m
}

// Kind returns the kind of the message.
func (m Msg) Kind() Kind { return Kind(wire.MAD(m).AttrID()) }

// TID is the transaction ID. It pairs an answer with its request in a trace; the protocol uses the communication
// IDs.
func (m Msg) TID() uint64 { return wire.MAD(m).TID() }

// Data is the message itself, 232 bytes, to be converted to the type of its kind: REQ(m.Data()).
func (m Msg) Data() []byte { return m[wire.MADHeaderLen:wire.MADLen:wire.MADLen] }

// Private returns the private data; its length depends on the kind.
func (m Msg) Private() []byte {
	return m[wire.MADHeaderLen+kinds[m.Kind()-KindREQ].private : wire.MADLen : wire.MADLen]
}

// SetPrivate copies p into the private data and fills it up with zeros. The caller has checked the length; the rest
// of a longer p is cut off.
func (m Msg) SetPrivate(p []byte) {
	room := m.Private()
	clear(room[copy(room, p):])
}

// LocalID is the sender's communication ID, in SIDR messages the request ID. It may be 0 in a REJ of a REQ and in
// messages to an unknown connection.
func (m Msg) LocalID() uint32 { return be.Uint32(m[wire.MADHeaderLen:]) }

// RemoteID is the receiver's communication ID; 0 for REQ and the SIDR messages, which have none.
func (m Msg) RemoteID() uint32 {
	switch m.Kind() {
	case KindREQ, KindSIDRREQ, KindSIDRREP:
		return 0
	}
	return be.Uint32(m[wire.MADHeaderLen+4:])
}

// putIDs writes both communication IDs at their place in all messages but REQ and SIDR.
func putIDs(b []byte, local, remote uint32) {
	be.PutUint32(b, local)
	be.PutUint32(b[4:], remote)
}

// ECE is the enhanced connection establishment data, by which adapters of one vendor exchange their abilities; zero
// if there is none. REQ, REP and SIDR_REP carry it.
type ECE struct {
	Vendor  uint32 // 24 bits
	Options uint32 // defined by the vendor; the attribute modifier of the datagram
}

// ECE reads the vendor ID and options; zero for messages that have none.
func (m Msg) ECE() ECE {
	e := ECE{Options: wire.MAD(m).AttrMod()}
	d := m.Data()
	switch m.Kind() {
	case KindREQ:
		e.Vendor = be.Uint32(d[4:]) & 0xFFFFFF
	case KindREP:
		e.Vendor = uint32(d[15])<<16 | uint32(d[19])<<8 | uint32(d[23])
	case KindSIDRREP:
		e.Vendor = uint32(be.Uint16(d[6:]))<<8 | uint32(d[11])
	default:
		return ECE{}
	}
	return e
}

// SetECE writes the vendor ID and options into a REQ, REP or SIDR_REP and leaves other messages alone.
func (m Msg) SetECE(e ECE) {
	d := m.Data()
	switch m.Kind() {
	case KindREQ:
		be.PutUint32(d[4:], uint32(d[4])<<24|e.Vendor&0xFFFFFF)
	case KindREP:
		d[15], d[19], d[23] = byte(e.Vendor>>16), byte(e.Vendor>>8), byte(e.Vendor)
	case KindSIDRREP:
		be.PutUint16(d[6:], uint16(e.Vendor>>8))
		d[11] = byte(e.Vendor)
	default:
		return
	}
	be.PutUint32(m[20:], e.Options)
}

// uint24 reads the 24 bits at b[0:3].
func uint24(b []byte) uint32 { return be.Uint32(b) >> 8 }

// putUint24 writes 24 bits and keeps the byte after them.
func putUint24(b []byte, v uint32) { be.PutUint32(b, v<<8|uint32(b[3])) }

func bit(set bool, mask byte) byte {
	if set {
		return mask
	}
	return 0
}
