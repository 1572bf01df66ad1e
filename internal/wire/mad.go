package wire

import "errors"

// Lengths of a management datagram, in bytes.
const (
	MADLen       = 256 // the whole datagram: the payload of a UD SEND ONLY between QPs 1
	MADHeaderLen = 24  // the common header
)

// MADBaseVersion is the base version of every MAD.
const MADBaseVersion = 1

// Management classes of a MAD (IBTA volume 1, 13.4.4).
const (
	ClassSubnLID      = 0x01 // subnet management, routed by LID
	ClassSubnDirected = 0x81 // subnet management, directed route
	ClassSubnAdm      = 0x03 // subnet administration
	ClassPerf         = 0x04 // performance counters
	ClassBM           = 0x05 // baseboard management
	ClassDevMgt       = 0x06 // device management
	ClassCM           = 0x07 // connection management
	ClassSNMP         = 0x08 // SNMP tunneling
)

// Methods of a MAD (IBTA volume 1, 13.4.5). An answer has the bit MethodResponse.
const (
	MethodGet         = 0x01
	MethodSet         = 0x02
	MethodSend        = 0x03 // without an answer; all CM messages
	MethodTrap        = 0x05
	MethodReport      = 0x06
	MethodTrapRepress = 0x07
	MethodResponse    = 0x80
	MethodGetResp     = MethodGet | MethodResponse // answers Get and Set
	MethodReportResp  = MethodReport | MethodResponse
)

// Attributes of all management classes (IBTA volume 1, 13.4.8).
const (
	AttrClassPortInfo = 0x0001
	AttrNotice        = 0x0002
	AttrInformInfo    = 0x0003
)

// Status of an answer: the lower byte is common to all classes, the upper one is defined by the class (IBTA volume
// 1, 13.4.7). The codes in bits 2 to 4 exclude each other.
const (
	StatusOK             = 0
	StatusBusy           = 1 << 0 // the request was discarded, try later
	StatusRedirect       = 1 << 1 // ask the QP that ClassPortInfo names
	StatusBadVersion     = 1 << 2 // base or class version not supported
	StatusBadMethod      = 2 << 2 // method not supported
	StatusBadMethodAttr  = 3 << 2 // method not supported for this attribute
	StatusInvalidValue   = 7 << 2 // a value in the attribute or its modifier
	StatusCodeMask       = 7 << 2
	StatusClassSpecShift = 8
)

// The reasons why ParseMAD refuses a datagram.
var (
	ErrMADLen     = errors.New("wire: management datagram: must be 256 bytes")
	ErrMADVersion = errors.New("wire: management datagram: base version must be 1")
)

// MAD is a management datagram of 256 bytes. Its header: base version 8; management class 8; class version 8; R 1,
// method 7; status 16; class-specific 16; transaction ID 64; attribute ID 16; reserved 16; attribute modifier 32.
// If ParseMAD has accepted it, or it has 256 bytes, no method fails.
type MAD []byte

// ParseMAD checks b, the payload of a packet for QP 1.
func ParseMAD(b []byte) (MAD, error) {
	switch {
	case len(b) != MADLen:
		return nil, ErrMADLen
	case b[0] != MADBaseVersion:
		return nil, ErrMADVersion
	}
	return b, nil
}

// BaseVersion is the version of the header's layout, MADBaseVersion.
func (m MAD) BaseVersion() uint8 { return m[0] }

// Class is the management class.
func (m MAD) Class() uint8 { return m[1] }

// ClassVersion is the version of the class's layout: 2 for CM and subnet administration, 1 for the others.
func (m MAD) ClassVersion() uint8 { return m[2] }

// Method is the method with the response bit: MethodGetResp is not MethodGet.
func (m MAD) Method() uint8 { return m[3] }

// IsResponse reports whether the method's response bit is set.
func (m MAD) IsResponse() bool { return m[3]&MethodResponse != 0 }

// Status is the status of an answer, 0 in a request. In directed-route subnet management bit 15 is
// the direction instead.
func (m MAD) Status() uint16 { return be.Uint16(m[4:]) }

// ClassSpecific is 16 bits for use by the class; 0 for CM.
func (m MAD) ClassSpecific() uint16 { return be.Uint16(m[6:]) }

// TID is the transaction ID, which pairs answers with requests.
func (m MAD) TID() uint64 { return be.Uint64(m[8:]) }

// AttrID is the kind of data; for CM, the kind of message.
func (m MAD) AttrID() uint16 { return be.Uint16(m[16:]) }

// AttrMod is the attribute modifier, defined by the attribute; 0 for CM.
func (m MAD) AttrMod() uint32 { return be.Uint32(m[20:]) }

// Data is the 232 bytes after the header.
func (m MAD) Data() []byte { return m[MADHeaderLen:MADLen:MADLen] }

// MADHeader is the decoded header of a MAD; the base version is MADBaseVersion.
type MADHeader struct {
	Class         uint8
	ClassVersion  uint8
	Method        uint8 // with the response bit
	Status        uint16
	ClassSpecific uint16
	TID           uint64
	AttrID        uint16
	AttrMod       uint32
}

// Header reads the whole header.
func (m MAD) Header() MADHeader {
	return MADHeader{
		Class: m.Class(), ClassVersion: m.ClassVersion(), Method: m.Method(), Status: m.Status(),
		ClassSpecific: m.ClassSpecific(), TID: m.TID(), AttrID: m.AttrID(), AttrMod: m.AttrMod(),
	}
}

// Put writes the whole header, reserved bytes as 0, and keeps the data.
func (m MAD) Put(h MADHeader) {
	_ = m[MADHeaderLen-1]
	m[0], m[1], m[2], m[3] = MADBaseVersion, h.Class, h.ClassVersion, h.Method
	be.PutUint16(m[4:], h.Status)
	be.PutUint16(m[6:], h.ClassSpecific)
	be.PutUint64(m[8:], h.TID)
	be.PutUint16(m[16:], h.AttrID)
	be.PutUint16(m[18:], 0)
	be.PutUint32(m[20:], h.AttrMod)
}
