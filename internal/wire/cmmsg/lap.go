package cmmsg

import "fmt"

// LAP asks to load an alternate path. Layout (byte: field and bits): 0: local communication ID 32; 4: remote
// communication ID 32; 8: reserved 32; 12: QPN of the receiver 24; 15: remote CM response timeout 5, reserved 3;
// 16: reserved 32; 20: local LID 16; 22: remote LID 16; 24: local GID 128; 40: remote GID 128; 56: flow label 20,
// reserved 4; 59: traffic class 8; 60: hop limit 8; 61: reserved 2, packet rate 6; 62: SL 4, subnet local 1,
// reserved 3; 63: local ACK timeout 5, reserved 3; 64: private data, 168 bytes. Linux does not answer it over RoCE.
type LAP []byte

// LocalID and RemoteID are the communication IDs.
func (r LAP) LocalID() uint32  { return be.Uint32(r) }
func (r LAP) RemoteID() uint32 { return be.Uint32(r[4:]) }

// RemoteQPN is the receiver's QP, 24 bits.
func (r LAP) RemoteQPN() uint32 { return uint24(r[12:]) }

// RemoteTimeout is the code of the time within which the sender expects an answer, 5 bits: 4.096 us * 2^n.
func (r LAP) RemoteTimeout() uint8 { return r[15] >> 3 }

// Path is the alternate path as the sender sees it.
func (r LAP) Path() PathFields {
	p := Path(r[20:]) // LAP and Path begin with the same fields
	return PathFields{
		LocalLID: p.LocalLID(), RemoteLID: p.RemoteLID(), LocalGID: p.LocalGID(), RemoteGID: p.RemoteGID(),
		FlowLabel: p.FlowLabel(),
		TClass:    r[59], HopLimit: r[60], Rate: r[61] & 0x3F, SL: r[62] >> 4, SubnetLocal: r[62]&0x08 != 0,
		AckTimeout: r[63] >> 3,
	}
}

// Private is the private data, 168 bytes.
func (r LAP) Private() []byte { return r[64:Len:Len] }

// Put writes everything but the private data.
func (r LAP) Put(local, remote, remoteQPN uint32, remoteTimeout uint8, p PathFields) {
	_ = r[Len-1]
	putIDs(r, local, remote)
	be.PutUint32(r[8:], 0)
	be.PutUint32(r[12:], remoteQPN<<8|uint32(remoteTimeout<<3))
	be.PutUint32(r[16:], 0)
	putEnds(r[20:], &p)
	be.PutUint32(r[56:], p.FlowLabel<<12|uint32(p.TClass))
	r[60], r[61] = p.HopLimit, p.Rate&0x3F
	r[62] = p.SL<<4 | bit(p.SubnetLocal, 0x08)
	r[63] = p.AckTimeout << 3
}

// APR answers a LAP. Layout (byte: field and bits): 0: local communication ID 32; 4: remote communication ID 32; 8:
// length of additional information 8; 9: status 8; 10: reserved 16; 12: additional information, 72 bytes; 84:
// private data, 148 bytes.
type APR []byte

// LocalID and RemoteID are the communication IDs.
func (r APR) LocalID() uint32  { return be.Uint32(r) }
func (r APR) RemoteID() uint32 { return be.Uint32(r[4:]) }

// Status reports whether the path was loaded, or why not.
func (r APR) Status() APRStatus { return APRStatus(r[9]) }

// Info is the additional information, up to 72 bytes.
func (r APR) Info() []byte {
	n := 12 + min(int(r[8]), ARILen)
	return r[12:n:n]
}

// Private is the private data, 148 bytes.
func (r APR) Private() []byte { return r[84:Len:Len] }

// Put writes everything but the private data. info has at most 72 bytes; the rest is cut off.
func (r APR) Put(local, remote uint32, status APRStatus, info []byte) {
	putIDs(r, local, remote)
	n := copy(r[12:12+ARILen], info)
	clear(r[12+n : 12+ARILen])
	r[8], r[9] = uint8(n), uint8(status)
	be.PutUint16(r[10:], 0)
}

// APRStatus is the status of an APR (enum ib_cm_apr_status).
type APRStatus uint8

// Statuses of an APR (IBTA volume 1, 12.8.2).
const (
	APRSuccess         APRStatus = 0
	APRInvalidCommID   APRStatus = 1
	APRUnsupported     APRStatus = 2
	APRReject          APRStatus = 3
	APRRedirect        APRStatus = 4
	APRIsCurrent       APRStatus = 5
	APRInvalidQPN      APRStatus = 6
	APRInvalidLID      APRStatus = 7
	APRInvalidGID      APRStatus = 8
	APRInvalidFlow     APRStatus = 9
	APRInvalidTClass   APRStatus = 10
	APRInvalidHopLimit APRStatus = 11
	APRInvalidRate     APRStatus = 12
	APRInvalidSL       APRStatus = 13
)

var aprNames = [...]string{
	"success", "invalid communication ID", "not supported", "rejected", "redirect", "is the current path",
	"invalid QPN", "invalid LID",
	"invalid GID", "invalid flow label", "invalid traffic class", "invalid hop limit", "invalid packet rate", "invalid SL",
}

// String is the number and what it means: "2 (not supported)".
func (s APRStatus) String() string {
	if int(s) < len(aprNames) {
		return fmt.Sprintf("%d (%s)", uint8(s), aprNames[s])
	}
	return fmt.Sprintf("%d", uint8(s))
}
