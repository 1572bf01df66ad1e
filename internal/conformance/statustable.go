package conformance

import "github.com/verbena-rdma/verbena/verbs"

const (
	rc = verbs.QPTypeRC
	uc = verbs.QPTypeUC
	ud = verbs.QPTypeUD
)

// Requests that fail at the requester's own device; the peer receives nothing.
var localFailures = []statusCase{
	{name: "LOC_PROT_ERR_SendWithWrongLKey", typ: rc, op: verbs.WRSend, n: 8, change: (*sides).badLKey,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_WriteFromBeyondTheRegion", typ: rc, op: verbs.WRRDMAWrite, n: 8, change: (*sides).pastTheEnd,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendFromBeforeTheRegion", typ: rc, op: verbs.WRSend, n: 8, change: (*sides).beforeStart,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendFromAnotherPD", typ: rc, op: verbs.WRSendWithImm, n: 8, change: (*sides).otherPD,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_ReadIntoReadOnlyMemory", typ: rc, op: verbs.WRRDMARead, n: 8, change: (*sides).readOnly,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_ReadWithWrongLKey", typ: rc, op: verbs.WRRDMARead, n: 8, change: (*sides).badLKey,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_AtomicIntoReadOnlyMemory", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8,
		change: (*sides).readOnly, a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_AtomicIntoAnotherPD", typ: rc, op: verbs.WRAtomicCmpAndSwp, n: 8, change: (*sides).otherPD,
		a: failed("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendWithWrongLKey", typ: uc, op: verbs.WRSend, n: 8, change: (*sides).badLKey,
		a: sqe("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_WriteFromBeyondTheRegion", typ: uc, op: verbs.WRRDMAWriteWithImm, n: 8,
		change: (*sides).pastTheEnd, a: sqe("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendFromAnotherPD", typ: uc, op: verbs.WRSend, n: 8, change: (*sides).otherPD,
		a: sqe("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendWithWrongLKey", typ: ud, op: verbs.WRSend, n: 8, change: (*sides).badLKey,
		a: sqe("LOC_PROT_ERR"), b: fine},
	{name: "LOC_PROT_ERR_SendFromBeyondTheRegion", typ: ud, op: verbs.WRSendWithImm, n: 8, change: (*sides).pastTheEnd,
		a: sqe("LOC_PROT_ERR"), b: fine},

	{name: "LOC_LEN_ERR_MessageAboveTheMTU", typ: ud, op: verbs.WRSend, n: 4097, a: sqe("LOC_LEN_ERR"), b: fine},

	{name: "LOC_QP_OP_ERR_ReadWithoutInitiatorDepth", typ: rc, op: verbs.WRRDMARead, n: 8,
		dial: func(i *verbs.QPInfo) { i.RdAtomic = 0 }, a: failed("LOC_QP_OP_ERR"), b: fine},
	{name: "LOC_QP_OP_ERR_AtomicWithoutInitiatorDepth", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8,
		dial: func(i *verbs.QPInfo) { i.RdAtomic = 0 }, a: failed("LOC_QP_OP_ERR"), b: fine},
	{name: "LOC_QP_OP_ERR_SendWithInvalidateOnUC", typ: uc, op: verbs.WRSendWithInv, n: 8,
		a: sqe("LOC_QP_OP_ERR"), b: fine},
}

// Both fail after a few milliseconds, each for one reason only, however busy the machine is.
var (
	shortTimeout = verbs.ConnectOptions{Timeout: 8, RetryCnt: 1}
	noRNR        = verbs.ConnectOptions{Timeout: 22, RNRRetry: 1, MinRNRTimer: 1}
)

// Requests that fail at the peer, or because it does not answer.
var remoteFailures = []statusCase{
	{name: "WR_FLUSH_ERR_PostedInErr", typ: rc, op: verbs.WRSend, n: 8,
		before: func(s *sides) { s.repost(func(*verbs.RecvWR) {}); s.to(s.qa, verbs.QPSErr) },
		a:      failed("WR_FLUSH_ERR"), b: fine},
	{name: "WR_FLUSH_ERR_PostedInErr", typ: uc, op: verbs.WRSend, n: 8,
		before: func(s *sides) { s.to(s.qa, verbs.QPSErr) }, a: failed("WR_FLUSH_ERR"), b: fine},
	{name: "WR_FLUSH_ERR_PostedInErr", typ: ud, op: verbs.WRSend, n: 8,
		before: func(s *sides) { s.to(s.qa, verbs.QPSErr) }, a: failed("WR_FLUSH_ERR"), b: fine},

	// Receives that are too small or invalid.
	{name: "LOC_LEN_ERR_REM_INV_REQ_ERR_MessageLongerThanItsReceive", typ: rc, op: verbs.WRSend, n: 101,
		a: failed("REM_INV_REQ_ERR"),
		b: seen{recvs: "1 LOC_LEN_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_LEN_ERR_REM_INV_REQ_ERR_LongMessage", typ: rc, op: verbs.WRSendWithImm, n: 9000,
		a: failed("REM_INV_REQ_ERR"),
		b: seen{recvs: "1 LOC_LEN_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_PROT_ERR_REM_OP_ERR_ReceiveWithWrongLKey", typ: rc, op: verbs.WRSend, n: 8, before: (*sides).badReceive,
		a: failed("REM_OP_ERR"),
		b: seen{recvs: "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_PROT_ERR_REM_OP_ERR_ReceiveIntoReadOnlyMemory", typ: rc, op: verbs.WRSend, n: 8, a: failed("REM_OP_ERR"),
		before: func(s *sides) {
			s.repost(func(wr *verbs.RecvWR) { wr.SGList[0] = s.b.region(make([]byte, 64), 0).SGE(0, 64) })
		},
		b: seen{recvs: "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_PROT_ERR_REM_OP_ERR_ReceiveIntoAnotherPD", typ: rc, op: verbs.WRSend, n: 8, a: failed("REM_OP_ERR"),
		before: func(s *sides) { s.repost(func(wr *verbs.RecvWR) { wr.SGList[0] = s.foreign(s.b).SGE(0, 64) }) },
		b:      seen{recvs: "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_PROT_ERR_ReceiveWithWrongLKey", typ: uc, op: verbs.WRSend, n: 8, before: (*sides).badReceive,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS},
		b: seen{recvs: "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "LOC_PROT_ERR_ReceiveWithWrongLKey", typ: ud, op: verbs.WRSend, n: 8, before: (*sides).badReceive,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS},
		b: seen{recvs: "1 LOC_PROT_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr}},
	{name: "MessageLongerThanItsReceiveIsDropped", typ: uc, op: verbs.WRSend, n: 101,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS},
		b: seen{recvs: "1 SUCCESS RECV 1", state: verbs.QPSRTS}}, // the next message uses the receive
	{name: "MessageLongerThanItsReceiveIsDropped", typ: ud, op: verbs.WRSend, n: 61,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS},
		b: seen{recvs: "1 SUCCESS RECV 41", state: verbs.QPSRTS}},

	// Memory that the peer may not access.
	{name: "REM_ACCESS_ERR_WriteWithWrongRKey", typ: rc, op: verbs.WRRDMAWrite, n: 8, change: (*sides).wrongRKey,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_ReadWithWrongRKey", typ: rc, op: verbs.WRRDMARead, n: 8, change: (*sides).wrongRKey,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_AtomicWithWrongRKey", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8,
		change: (*sides).wrongRKey, a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_WriteBeyondTheRegion", typ: rc, op: verbs.WRRDMAWrite, n: 8, change: (*sides).rangeTooLong,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_ReadBeforeTheRegion", typ: rc, op: verbs.WRRDMARead, n: 16, change: (*sides).rangeBefore,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_WriteThatWrapsAround", typ: rc, op: verbs.WRRDMAWrite, n: 16, change: (*sides).rangeWraps,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_AtomicBeyondTheRegion", typ: rc, op: verbs.WRAtomicCmpAndSwp, n: 8,
		change: func(s *sides, wr *verbs.SendWR) { wr.RemoteAddr = s.b.mr.Addr() + memory }, a: failed("REM_ACCESS_ERR"),
		b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_LongWriteIsRefusedAtItsFirstPacket", typ: rc, op: verbs.WRRDMAWriteWithImm, n: 9000,
		change: func(s *sides, wr *verbs.SendWR) { wr.RemoteAddr += memory - 8999 }, a: failed("REM_ACCESS_ERR"),
		b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_WriteWithoutTheRegionsRight", typ: rc, op: verbs.WRRDMAWrite, n: 8,
		change: (*sides).rightless, a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_ReadWithoutTheRegionsRight", typ: rc, op: verbs.WRRDMARead, n: 8, change: (*sides).rightless,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_AtomicWithoutTheRegionsRight", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8,
		change: (*sides).rightless, a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_WriteToAnotherPD", typ: rc, op: verbs.WRRDMAWrite, n: 8, change: (*sides).foreignMR,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_ReadFromAnotherPD", typ: rc, op: verbs.WRRDMARead, n: 8, change: (*sides).foreignMR,
		a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_WriteToADeregisteredRegion", typ: rc, op: verbs.WRRDMAWrite, n: 8,
		change: (*sides).deregistered, a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "REM_ACCESS_ERR_ReadOfADeregisteredRegion", typ: rc, op: verbs.WRRDMARead, n: 8,
		change: (*sides).deregistered, a: failed("REM_ACCESS_ERR"), b: refusing(accessErr)},
	{name: "LOC_ACCESS_ERR_REM_ACCESS_ERR_WriteWithImmediateAndWrongRKey", typ: rc, op: verbs.WRRDMAWriteWithImm, n: 8,
		change: (*sides).wrongRKey, a: failed("REM_ACCESS_ERR"),
		b: seen{recvs: "1 LOC_ACCESS_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr, events: accessErr}},
	{name: "WriteWithWrongRKeyIsDropped", typ: uc, op: verbs.WRRDMAWrite, n: 8, change: (*sides).wrongRKey,
		a: seen{sends: "7 SUCCESS RDMA_WRITE 0", state: verbs.QPSRTS},
		b: seen{recvs: "1 SUCCESS RECV 1", state: verbs.QPSRTS}},
	{name: "WriteWithImmediateAndWrongRKeyIsDropped", typ: uc, op: verbs.WRRDMAWriteWithImm, n: 8,
		change: (*sides).wrongRKey,
		a:      seen{sends: "7 SUCCESS RDMA_WRITE 0", state: verbs.QPSRTS},
		b:      seen{recvs: "1 SUCCESS RECV 1", state: verbs.QPSRTS}},

	// Operations that the QP does not permit, and invalid requests.
	{name: "REM_INV_REQ_ERR_WriteThatTheQPForbids", typ: rc, op: verbs.WRRDMAWrite, n: 8,
		opts: verbs.ConnectOptions{Access: verbs.AccessRemoteRead}, a: failed("REM_INV_REQ_ERR"), b: refusing(reqErr)},
	{name: "REM_INV_REQ_ERR_ReadThatTheQPForbids", typ: rc, op: verbs.WRRDMARead, n: 8,
		opts: verbs.ConnectOptions{Access: verbs.AccessRemoteWrite}, a: failed("REM_INV_REQ_ERR"), b: refusing(reqErr)},
	{name: "REM_INV_REQ_ERR_AtomicThatTheQPForbids", typ: rc, op: verbs.WRAtomicCmpAndSwp, n: 8,
		opts: verbs.ConnectOptions{Access: verbs.AccessRemoteWrite}, a: failed("REM_INV_REQ_ERR"), b: refusing(reqErr)},
	{name: "REM_INV_REQ_ERR_MisalignedAtomic", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8, change: (*sides).misaligned,
		a: failed("REM_INV_REQ_ERR"), b: refusing(accessErr)},
	{name: "WriteThatTheQPForbidsIsDropped", typ: uc, op: verbs.WRRDMAWrite, n: 8,
		opts: verbs.ConnectOptions{Access: verbs.AccessRemoteRead},
		a:    seen{sends: "7 SUCCESS RDMA_WRITE 0", state: verbs.QPSRTS},
		b:    seen{recvs: "1 SUCCESS RECV 1", state: verbs.QPSRTS}},

	// Peers that do not answer or have no receive.
	{name: "RETRY_EXC_ERR_PeerInReset", typ: rc, op: verbs.WRSend, n: 8, opts: shortTimeout,
		before: func(s *sides) { s.to(s.qb, verbs.QPSReset) }, a: failed("RETRY_EXC_ERR"), b: seen{state: verbs.QPSReset}},
	{name: "RETRY_EXC_ERR_PeerInErr", typ: rc, op: verbs.WRRDMARead, n: 8, opts: shortTimeout,
		before: func(s *sides) { s.to(s.qb, verbs.QPSErr) }, a: failed("RETRY_EXC_ERR"), b: seen{state: verbs.QPSErr}},
	{name: "RETRY_EXC_ERR_NoSuchQP", typ: rc, op: verbs.WRAtomicFetchAndAdd, n: 8, opts: shortTimeout,
		dial: func(i *verbs.QPInfo) { i.QPN ^= 0x800000 }, a: failed("RETRY_EXC_ERR"), b: fine},
	{name: "RNR_RETRY_EXC_ERR_SendWithoutReceive", typ: rc, op: verbs.WRSend, n: 8, opts: noRNR, noRecv: true,
		a: failed("RNR_RETRY_EXC_ERR"), b: fine},
	{name: "RNR_RETRY_EXC_ERR_WriteWithImmediateWithoutReceive", typ: rc, op: verbs.WRRDMAWriteWithImm, n: 8,
		opts: noRNR, noRecv: true,
		before: func(s *sides) { copy(s.b.buf, s.a.buf) }, a: failed("RNR_RETRY_EXC_ERR"), b: fine},
	{name: "SendWithoutReceiveIsDropped", typ: uc, op: verbs.WRSend, n: 8, noRecv: true,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS}, b: fine},
	{name: "SendWithoutReceiveIsDropped", typ: ud, op: verbs.WRSend, n: 8, noRecv: true,
		a: seen{sends: "7 SUCCESS SEND 0", state: verbs.QPSRTS}, b: fine},

	// A key without a memory window.
	{name: "REM_ACCESS_ERR_SendWithInvalidateOfAKeyWithoutWindow", typ: rc, op: verbs.WRSendWithInv, n: 8,
		a: failed("REM_ACCESS_ERR"),
		b: seen{recvs: "1 LOC_ACCESS_ERR, 2 WR_FLUSH_ERR", state: verbs.QPSErr, events: accessErr}},
}
