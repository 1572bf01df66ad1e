package cmmsg

import "fmt"

// REQ asks for a connection. Layout (byte: field and bits): 0: local communication ID 32; 4: reserved 8; 5: ECE
// vendor ID 24; 8: service ID 64; 16: local CA GUID 64; 24: reserved 32; 28: Q_Key 32; 32: local QPN 24; 35: responder
// resources 8; 36: local EECN 24; 39: initiator depth 8; 40: remote EECN 24; 43: remote CM response
// timeout 5, transport service type 2, end-to-end flow control 1; 44: starting PSN 24; 47: local CM response
// timeout 5, retry count 3; 48: P_Key 16; 50: path MTU 4, RDC exists 1, RNR retry count 3; 51: max CM retries 4, SRQ
// 1, extended transport type 3; 52: primary path; 96: alternate path; 140: private data, 92 bytes.
type REQ []byte

// Transport is the kind of QP that a request asks for: the transport service type, with the extended type above it.
type Transport uint8

// Transports of a REQ.
const (
	RC  Transport = 0
	UC  Transport = 1
	RD  Transport = 2
	XRC Transport = 3 | 1<<2 // transport service type 3: the extended type applies
)

var transportNames = map[Transport]string{RC: "RC", UC: "UC", RD: "RD", XRC: "XRC"}

func (t Transport) String() string {
	if s, ok := transportNames[t]; ok {
		return s
	}
	return fmt.Sprintf("transport type %d.%d", t&3, t>>2)
}

// LocalID is the sender's communication ID.
func (r REQ) LocalID() uint32 { return be.Uint32(r) }

// ServiceID is the requested service.
func (r REQ) ServiceID() ServiceID { return ServiceID(be.Uint64(r[8:])) }

// LocalGUID is the GUID of the sender's node.
func (r REQ) LocalGUID() uint64 { return be.Uint64(r[16:]) }

// LocalQKey is the Q_Key of an RD QP; 0.
func (r REQ) LocalQKey() uint32 { return be.Uint32(r[28:]) }

// LocalQPN is the sender's QP, 24 bits.
func (r REQ) LocalQPN() uint32 { return uint24(r[32:]) }

// ResponderResources is the number of READs and atomics that the sender's QP accepts at a time.
func (r REQ) ResponderResources() uint8 { return r[35] }

// LocalEECN and RemoteEECN are end-to-end contexts of RD; 0.
func (r REQ) LocalEECN() uint32  { return uint24(r[36:]) }
func (r REQ) RemoteEECN() uint32 { return uint24(r[40:]) }

// InitiatorDepth is the number of READs and atomics that the sender's QP will have outstanding.
func (r REQ) InitiatorDepth() uint8 { return r[39] }

// RemoteTimeout is the code of the time within which the sender expects an answer, 5 bits: 4.096 us * 2^n.
func (r REQ) RemoteTimeout() uint8 { return r[43] >> 3 }

// Transport is the kind of connection.
func (r REQ) Transport() Transport {
	t := Transport(r[43] >> 1 & 3)
	if t == 3 {
		t |= Transport(r[51]&7) << 2
	}
	return t
}

// FlowControl reports whether the sender does end-to-end flow control.
func (r REQ) FlowControl() bool { return r[43]&1 != 0 }

// StartPSN is the PSN that the receiver's first packet must have, 24 bits.
func (r REQ) StartPSN() uint32 { return uint24(r[44:]) }

// LocalTimeout is the code of the time within which the sender answers, 5 bits: 4.096 us * 2^n.
func (r REQ) LocalTimeout() uint8 { return r[47] >> 3 }

// RetryCount is the number of retries of the connection's QPs, 3 bits.
func (r REQ) RetryCount() uint8 { return r[47] & 7 }

// PKey is the partition.
func (r REQ) PKey() uint16 { return be.Uint16(r[48:]) }

// MTU is the code of the path MTU, 4 bits: 1 is 256 bytes, 5 is 4096.
func (r REQ) MTU() uint8 { return r[50] >> 4 }

// RDCExists is a flag of RD; false.
func (r REQ) RDCExists() bool { return r[50]&0x08 != 0 }

// RNRRetry is the number of retries of the receiver's QP after an RNR NAK, 3 bits; 7 is without limit.
func (r REQ) RNRRetry() uint8 { return r[50] & 7 }

// MaxRetries is the number of times that the receiver repeats its reply, 4 bits.
func (r REQ) MaxRetries() uint8 { return r[51] >> 4 }

// SRQ reports whether the sender's QP has a shared receive queue.
func (r REQ) SRQ() bool { return r[51]&0x08 != 0 }

// Primary and Alternate are the paths. Without an alternate path its local LID is 0.
func (r REQ) Primary() Path   { return Path(r[52:96:96]) }
func (r REQ) Alternate() Path { return Path(r[96:140:140]) }

// Private is the private data, 92 bytes.
func (r REQ) Private() []byte { return r[140:Len:Len] }

// REQFields is the decoded form of a REQ, without vendor ID and private data.
type REQFields struct {
	LocalID                            uint32
	ServiceID                          ServiceID
	LocalGUID                          uint64
	LocalQKey                          uint32
	LocalQPN, LocalEECN, RemoteEECN    uint32
	ResponderResources, InitiatorDepth uint8
	RemoteTimeout, LocalTimeout        uint8 // 5 bits
	Transport                          Transport
	FlowControl, RDCExists, SRQ        bool
	StartPSN                           uint32
	RetryCount, RNRRetry               uint8 // 3 bits
	PKey                               uint16
	MTU                                uint8 // 4 bits
	MaxRetries                         uint8 // 4 bits
	Primary, Alternate                 PathFields
}

// Fields reads everything but the vendor ID and the private data.
func (r REQ) Fields() REQFields {
	return REQFields{
		LocalID: r.LocalID(), ServiceID: r.ServiceID(), LocalGUID: r.LocalGUID(), LocalQKey: r.LocalQKey(),
		LocalQPN: r.LocalQPN(), LocalEECN: r.LocalEECN(), RemoteEECN: r.RemoteEECN(),
		ResponderResources: r.ResponderResources(), InitiatorDepth: r.InitiatorDepth(),
		RemoteTimeout: r.RemoteTimeout(), LocalTimeout: r.LocalTimeout(), Transport: r.Transport(),
		FlowControl: r.FlowControl(), RDCExists: r.RDCExists(), SRQ: r.SRQ(), StartPSN: r.StartPSN(),
		RetryCount: r.RetryCount(), RNRRetry: r.RNRRetry(), PKey: r.PKey(), MTU: r.MTU(), MaxRetries: r.MaxRetries(),
		Primary: r.Primary().Fields(), Alternate: r.Alternate().Fields(),
	}
}

// Put writes everything but the vendor ID and the private data, reserved bits as 0. The message comes from Make, or
// already has the vendor ID.
func (r REQ) Put(f REQFields) {
	_ = r[Len-1]
	be.PutUint32(r, f.LocalID)
	r[4] = 0
	be.PutUint64(r[8:], uint64(f.ServiceID))
	be.PutUint64(r[16:], f.LocalGUID)
	be.PutUint32(r[24:], 0)
	be.PutUint32(r[28:], f.LocalQKey)
	be.PutUint32(r[32:], f.LocalQPN<<8|uint32(f.ResponderResources))
	be.PutUint32(r[36:], f.LocalEECN<<8|uint32(f.InitiatorDepth))
	be.PutUint32(r[40:], f.RemoteEECN<<8|uint32(f.RemoteTimeout<<3|uint8(f.Transport&3)<<1|bit(f.FlowControl, 1)))
	be.PutUint32(r[44:], f.StartPSN<<8|uint32(f.LocalTimeout<<3|f.RetryCount&7))
	be.PutUint16(r[48:], f.PKey)
	r[50] = f.MTU<<4 | bit(f.RDCExists, 0x08) | f.RNRRetry&7
	r[51] = f.MaxRetries<<4 | bit(f.SRQ, 0x08) | uint8(f.Transport>>2)&7
	r.Primary().Put(f.Primary)
	r.Alternate().Put(f.Alternate)
}
