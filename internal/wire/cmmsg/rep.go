package cmmsg

// REP accepts a request. Layout (byte: field and bits): 0: local communication ID 32; 4: remote communication ID
// 32; 8: Q_Key 32; 12: local QPN 24; 15: ECE vendor ID, high 8; 16: local EECN 24; 19: vendor ID, middle 8; 20:
// starting PSN 24; 23: vendor ID, low 8; 24: responder resources 8; 25: initiator depth 8; 26: target ACK delay 5,
// failover accepted 2, end-to-end flow control 1; 27: RNR retry count 3, SRQ 1, reserved 4; 28: local CA GUID 64;
// 36: private data, 196 bytes.
type REP []byte

// LocalID and RemoteID are the communication IDs.
func (r REP) LocalID() uint32  { return be.Uint32(r) }
func (r REP) RemoteID() uint32 { return be.Uint32(r[4:]) }

// LocalQKey is the Q_Key of an RD QP; 0.
func (r REP) LocalQKey() uint32 { return be.Uint32(r[8:]) }

// LocalQPN is the sender's QP, 24 bits; 0 in an XRC connection, whose QP is LocalEECN.
func (r REP) LocalQPN() uint32 { return uint24(r[12:]) }

// LocalEECN is the sender's QP in an XRC connection, otherwise 0.
func (r REP) LocalEECN() uint32 { return uint24(r[16:]) }

// StartPSN is the PSN that the receiver's first packet must have, 24 bits.
func (r REP) StartPSN() uint32 { return uint24(r[20:]) }

// ResponderResources is the number of READs and atomics that the sender's QP accepts at a time.
func (r REP) ResponderResources() uint8 { return r[24] }

// InitiatorDepth is the number of READs and atomics that the sender's QP will have outstanding.
func (r REP) InitiatorDepth() uint8 { return r[25] }

// TargetAckDelay is the code of the time that the sender's device takes to answer a packet, 5 bits.
func (r REP) TargetAckDelay() uint8 { return r[26] >> 3 }

// Failover is the result for the alternate path: 0 accepted, 1 not supported, 2 rejected.
func (r REP) Failover() uint8 { return r[26] >> 1 & 3 }

// FlowControl reports whether the sender does end-to-end flow control.
func (r REP) FlowControl() bool { return r[26]&1 != 0 }

// RNRRetry is the number of retries of the receiver's QP after an RNR NAK, 3 bits; 7 is without limit.
func (r REP) RNRRetry() uint8 { return r[27] >> 5 }

// SRQ reports whether the sender's QP has a shared receive queue.
func (r REP) SRQ() bool { return r[27]&0x10 != 0 }

// LocalGUID is the GUID of the sender's node.
func (r REP) LocalGUID() uint64 { return be.Uint64(r[28:]) }

// Private is the private data, 196 bytes.
func (r REP) Private() []byte { return r[36:Len:Len] }

// REPFields is the decoded form of a REP, without vendor ID and private data.
type REPFields struct {
	LocalID, RemoteID                  uint32
	LocalQKey                          uint32
	LocalQPN, LocalEECN                uint32
	StartPSN                           uint32
	ResponderResources, InitiatorDepth uint8
	TargetAckDelay                     uint8 // 5 bits
	Failover                           uint8 // 2 bits
	FlowControl                        bool
	RNRRetry                           uint8 // 3 bits
	SRQ                                bool
	LocalGUID                          uint64
}

// Fields reads everything but the vendor ID and the private data.
func (r REP) Fields() REPFields {
	return REPFields{
		LocalID: r.LocalID(), RemoteID: r.RemoteID(), LocalQKey: r.LocalQKey(), LocalQPN: r.LocalQPN(),
		LocalEECN: r.LocalEECN(),
		StartPSN:  r.StartPSN(), ResponderResources: r.ResponderResources(), InitiatorDepth: r.InitiatorDepth(),
		TargetAckDelay: r.TargetAckDelay(), Failover: r.Failover(), FlowControl: r.FlowControl(), RNRRetry: r.RNRRetry(),
		SRQ: r.SRQ(), LocalGUID: r.LocalGUID(),
	}
}

// Put writes everything but the vendor ID and the private data, reserved bits as 0.
func (r REP) Put(f REPFields) {
	_ = r[Len-1]
	putIDs(r, f.LocalID, f.RemoteID)
	be.PutUint32(r[8:], f.LocalQKey)
	putUint24(r[12:], f.LocalQPN)
	putUint24(r[16:], f.LocalEECN)
	putUint24(r[20:], f.StartPSN)
	r[24], r[25] = f.ResponderResources, f.InitiatorDepth
	r[26] = f.TargetAckDelay<<3 | f.Failover&3<<1 | bit(f.FlowControl, 1)
	r[27] = f.RNRRetry<<5 | bit(f.SRQ, 0x10)
	be.PutUint64(r[28:], f.LocalGUID)
}
