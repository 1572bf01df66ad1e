package cmmsg

import "fmt"

// SIDRREQ asks which datagram QP serves a service ID. Layout (byte: field and bits): 0: request ID 32; 4: P_Key
// 16; 6: reserved 16; 8: service ID 64; 16: private data, 216 bytes.
type SIDRREQ []byte

// RequestID is the sender's number for the request.
func (r SIDRREQ) RequestID() uint32 { return be.Uint32(r) }

// PKey is the partition.
func (r SIDRREQ) PKey() uint16 { return be.Uint16(r[4:]) }

// ServiceID is the requested service.
func (r SIDRREQ) ServiceID() ServiceID { return ServiceID(be.Uint64(r[8:])) }

// Private is the private data, 216 bytes.
func (r SIDRREQ) Private() []byte { return r[16:Len:Len] }

// Put writes everything but the private data.
func (r SIDRREQ) Put(id uint32, pkey uint16, s ServiceID) {
	be.PutUint32(r, id)
	be.PutUint16(r[4:], pkey)
	be.PutUint16(r[6:], 0)
	be.PutUint64(r[8:], uint64(s))
}

// SIDRREP answers a SIDRREQ. Layout (byte: field and bits): 0: request ID 32; 4: status 8; 5: length of additional
// information 8; 6: ECE vendor ID, high 16; 8: QPN 24; 11: vendor ID, low 8; 12: service ID 64; 20: Q_Key 32; 24:
// additional information, 72 bytes; 96: private data, 136 bytes.
type SIDRREP []byte

// RequestID is the number of the request.
func (r SIDRREP) RequestID() uint32 { return be.Uint32(r) }

// Status reports whether QPN and QKey are valid, or why not.
func (r SIDRREP) Status() SIDRStatus { return SIDRStatus(r[4]) }

// QPN is the QP that serves the service ID, 24 bits.
func (r SIDRREP) QPN() uint32 { return uint24(r[8:]) }

// ServiceID is the requested service.
func (r SIDRREP) ServiceID() ServiceID { return ServiceID(be.Uint64(r[12:])) }

// QKey is the Q_Key for sending to QPN.
func (r SIDRREP) QKey() uint32 { return be.Uint32(r[20:]) }

// Info is the additional information, up to 72 bytes: for SIDRRedirect, the node to ask instead.
func (r SIDRREP) Info() []byte {
	n := 24 + min(int(r[5]), ARILen)
	return r[24:n:n]
}

// Private is the private data, 136 bytes.
func (r SIDRREP) Private() []byte { return r[96:Len:Len] }

// SIDRREPFields is the decoded form of a SIDRREP, without vendor ID and private data.
type SIDRREPFields struct {
	RequestID uint32
	Status    SIDRStatus
	QPN       uint32
	ServiceID ServiceID
	QKey      uint32
	Info      []byte // at most 72 bytes
}

// Fields reads everything but the vendor ID and the private data. Info aliases the message.
func (r SIDRREP) Fields() SIDRREPFields {
	return SIDRREPFields{
		RequestID: r.RequestID(),
		Status:    r.Status(),
		QPN:       r.QPN(),
		ServiceID: r.ServiceID(),
		QKey:      r.QKey(),
		Info:      r.Info(),
	}
}

// Put writes everything but the vendor ID and the private data.
func (r SIDRREP) Put(f SIDRREPFields) {
	_ = r[Len-1]
	be.PutUint32(r, f.RequestID)
	n := copy(r[24:24+ARILen], f.Info)
	clear(r[24+n : 24+ARILen])
	r[4], r[5] = uint8(f.Status), uint8(n)
	putUint24(r[8:], f.QPN)
	be.PutUint64(r[12:], uint64(f.ServiceID))
	be.PutUint32(r[20:], f.QKey)
}

// SIDRStatus is the status of a SIDRREP (enum ib_cm_sidr_status).
type SIDRStatus uint8

// Statuses of a SIDRREP (IBTA volume 1, 12.11.2.1).
const (
	SIDRSuccess        SIDRStatus = 0
	SIDRUnsupported    SIDRStatus = 1 // no listener
	SIDRReject         SIDRStatus = 2 // the program refused
	SIDRNoQP           SIDRStatus = 3
	SIDRRedirect       SIDRStatus = 4
	SIDRUnsupportedVer SIDRStatus = 5
)

var sidrNames = [...]string{
	"success",
	"service ID not supported",
	"rejected",
	"no QP",
	"redirect",
	"version not supported",
}

// String returns the number and its meaning: "1 (service ID not supported)".
func (s SIDRStatus) String() string {
	if int(s) < len(sidrNames) {
		return fmt.Sprintf("%d (%s)", uint8(s), sidrNames[s])
	}
	return fmt.Sprintf("%d", uint8(s))
}
