package cmmsg

import "fmt"

// About is the message that a REJ refuses or an MRA acknowledges.
type About uint8

// The values of About. In an MRA, Other is a LAP.
const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2
)

func (a About) String() string {
	switch a {
	case AboutREQ:
		return "REQ"
	case AboutREP:
		return "REP"
	case AboutOther:
		return "other"
	}
	return fmt.Sprintf("message %d", uint8(a))
}

// MRA acknowledges a message whose answer takes longer. Layout (byte: field and bits): 0: local communication ID
// 32; 4: remote communication ID 32; 8: message MRAed 2, reserved 6; 9: service timeout 5, reserved 3; 10: private
// data, 222 bytes.
type MRA []byte

// LocalID and RemoteID are the communication IDs.
func (r MRA) LocalID() uint32  { return be.Uint32(r) }
func (r MRA) RemoteID() uint32 { return be.Uint32(r[4:]) }

// About is the message that the MRA acknowledges.
func (r MRA) About() About { return About(r[8] >> 6) }

// ServiceTimeout is the code of the time that the answer may take, 5 bits: 4.096 us * 2^n.
func (r MRA) ServiceTimeout() uint8 { return r[9] >> 3 }

// Private is the private data, 222 bytes.
func (r MRA) Private() []byte { return r[10:Len:Len] }

// Put writes everything but the private data.
func (r MRA) Put(local, remote uint32, about About, serviceTimeout uint8) {
	putIDs(r, local, remote)
	r[8], r[9] = uint8(about)<<6, serviceTimeout<<3
}

// ARILen is the length of the additional information in a REJ, SIDR_REP and APR, in bytes.
const ARILen = 72

// REJ refuses a message. Layout (byte: field and bits): 0: local communication ID 32; 4: remote communication ID
// 32; 8: message rejected 2, reserved 6; 9: length of additional information 7, reserved 1; 10: reason 16; 12:
// additional information, 72 bytes; 84: private data, 148 bytes.
type REJ []byte

// LocalID and RemoteID are the communication IDs. LocalID is 0 if the sender has none.
func (r REJ) LocalID() uint32  { return be.Uint32(r) }
func (r REJ) RemoteID() uint32 { return be.Uint32(r[4:]) }

// About is the message that is refused.
func (r REJ) About() About { return About(r[8] >> 6) }

// Reason is the reason of the refusal.
func (r REJ) Reason() Reason { return Reason(be.Uint16(r[10:])) }

// ARI is the additional information, up to 72 bytes. Its meaning depends on the reason: the GUID of the sender's
// node for RejTimeout, the proposed GID for RejInvalidGID, the code of the MTU for RejInvalidMTU.
func (r REJ) ARI() []byte {
	n := 12 + min(int(r[9]>>1), ARILen)
	return r[12:n:n]
}

// MTU is the code of the largest path MTU that the sender of a REJ for RejInvalidMTU accepts, 1 to 5; 0 if it does not
// say. The code is in the first byte of the additional information, in the lower half or, as in a REQ, in the upper.
func (r REJ) MTU() uint8 {
	ari := r.ARI()
	if r.Reason() != RejInvalidMTU || len(ari) == 0 {
		return 0
	}
	code := ari[0]
	if code&0xF == 0 {
		code >>= 4
	}
	if code > 5 {
		return 0
	}
	return code
}

// Private is the private data, 148 bytes.
func (r REJ) Private() []byte { return r[84:Len:Len] }

// Put writes everything but the private data. ari has at most 72 bytes; the rest is cut off.
func (r REJ) Put(local, remote uint32, about About, reason Reason, ari []byte) {
	putIDs(r, local, remote)
	n := copy(r[12:12+ARILen], ari)
	clear(r[12+n : 12+ARILen])
	r[8], r[9] = uint8(about)<<6, uint8(n)<<1
	be.PutUint16(r[10:], uint16(reason))
}

// Reason is the reason of a REJ (enum ib_cm_rej_reason).
type Reason uint16

// Reasons of a REJ (IBTA volume 1, 12.6.7.2).
const (
	RejNoQP                Reason = 1
	RejNoEEC               Reason = 2
	RejNoResources         Reason = 3
	RejTimeout             Reason = 4 // the sender no longer waits
	RejUnsupported         Reason = 5
	RejInvalidCommID       Reason = 6
	RejInvalidCommInstance Reason = 7
	RejInvalidServiceID    Reason = 8 // no listener
	RejInvalidTransport    Reason = 9
	RejStale               Reason = 10 // an old connection of that QP still exists
	RejRDCNotExist         Reason = 11
	RejInvalidGID          Reason = 12
	RejInvalidLID          Reason = 13
	RejInvalidSL           Reason = 14
	RejInvalidTClass       Reason = 15
	RejInvalidHopLimit     Reason = 16
	RejInvalidRate         Reason = 17
	RejInvalidAltGID       Reason = 18
	RejInvalidAltLID       Reason = 19
	RejInvalidAltSL        Reason = 20
	RejInvalidAltTClass    Reason = 21
	RejInvalidAltHopLimit  Reason = 22
	RejInvalidAltRate      Reason = 23
	RejPortCMRedirect      Reason = 24
	RejPortRedirect        Reason = 25
	RejInvalidMTU          Reason = 26
	RejInsufficientResp    Reason = 27 // too few responder resources
	RejConsumer            Reason = 28 // the program refused
	RejInvalidRNRRetry     Reason = 29
	RejDuplicateCommID     Reason = 30
	RejInvalidClassVersion Reason = 31
	RejInvalidFlowLabel    Reason = 32
	RejInvalidAltFlowLabel Reason = 33
	RejVendorNotSupported  Reason = 35 // the ECE vendor option
	maxReason                     = RejVendorNotSupported
)

var reasonNames = [maxReason + 1]string{
	1: "no QP", "no EEC", "no resources", "timeout", "unsupported request", "invalid communication ID",
	"invalid communication instance",
	"invalid service ID", "invalid transport type", "stale connection", "RDC does not exist", "invalid GID", "invalid LID",
	"invalid SL", "invalid traffic class", "invalid hop limit", "invalid packet rate", "invalid alternate GID",
	"invalid alternate LID",
	"invalid alternate SL", "invalid alternate traffic class", "invalid alternate hop limit",
	"invalid alternate packet rate",
	"port and CM redirection", "port redirection", "invalid path MTU", "insufficient responder resources",
	"rejected by the program",
	"invalid RNR retry count", "duplicate local communication ID", "invalid class version", "invalid flow label",
	"invalid alternate flow label", 35: "vendor option not supported",
}

// String returns the number and its meaning: "8 (invalid service ID)".
func (r Reason) String() string {
	if r <= maxReason && reasonNames[r] != "" {
		return fmt.Sprintf("%d (%s)", uint16(r), reasonNames[r])
	}
	return fmt.Sprintf("%d", uint16(r))
}
