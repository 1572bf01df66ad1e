package manual

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// E-12: the state of a QP.
func Example_e12QueryQP() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(8, nil))
	qp := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
	defer closeAll(qp, cq, pd)
	attr, init, err := qp.Query(verbs.QPAttrState | verbs.QPAttrCap)
	check(err)
	fmt.Println(attr.QPState, init.Cap.MaxSendWR >= 2)
	// Output: RESET true
}

// E-13: QPs with one CQ, with two CQs, with an SRQ, and with inline data of up to 512 bytes.
func Example_e13CreateQP() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq, recvCQ := must(vctx.CreateCQ(8, nil)), must(vctx.CreateCQ(8, nil))
	srq := must(pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 10, MaxSGE: 1}}))

	one := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
	two := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: recvCQ, Cap: sizes}))
	shared := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: recvCQ, SRQ: srq,
		Cap: verbs.QPCap{MaxSendWR: 2, MaxSendSGE: 1}}))
	large := sizes
	large.MaxInlineData = 512
	inline := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: large}))

	_, init, err := inline.Query(verbs.QPAttrCap)
	check(err)
	fmt.Println(one.RecvCQ() == cq, two.RecvCQ() == recvCQ, shared.SRQ() == srq, init.Cap.MaxInlineData >= 512)
	closeAll(one, two, shared, inline, srq, cq, recvCQ, pd)
	// Output: true true true true
}

// toInit moves a QP from RESET to INIT, where receives can be posted.
func toInit(qp *verbs.QP) {
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: verbs.AccessRemoteWrite}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if qp.Type() == verbs.QPTypeUD {
		attr.QKey = 0x11111111
		mask |= verbs.QPAttrQKey
	} else {
		mask |= verbs.QPAttrAccessFlags
	}
	check(qp.Modify(&attr, mask))
}

// toRTR moves a QP from RESET to RTR, where it receives. dest is the peer's QP number, here on the same device.
func toRTR(qp *verbs.QP, dest uint32) {
	toInit(qp)
	attr := verbs.QPAttr{QPState: verbs.QPSRTR}
	mask := verbs.QPAttrState
	if qp.Type() != verbs.QPTypeUD {
		attr.PathMTU, attr.DestQPNum, attr.RQPSN = verbs.MTU1024, dest, 0
		attr.AHAttr = verbs.AHAttr{PortNum: 1, IsGlobal: true, GRH: verbs.GlobalRoute{
			DGID: must(qp.Context().QueryGID(1, 1)), SGIDIndex: 1, HopLimit: 64,
		}}
		mask |= verbs.QPAttrAV | verbs.QPAttrPathMTU | verbs.QPAttrDestQPN | verbs.QPAttrRQPSN
	}
	if qp.Type() == verbs.QPTypeRC {
		attr.MaxDestRdAtomic, attr.MinRNRTimer = 1, 12
		mask |= verbs.QPAttrMaxDestRdAtomic | verbs.QPAttrMinRNRTimer
	}
	check(qp.Modify(&attr, mask))
}

// toRTS moves a QP from RESET to RTS, where it sends and receives.
func toRTS(qp *verbs.QP, dest uint32) {
	toRTR(qp, dest)
	attr := verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: 0}
	mask := verbs.QPAttrState | verbs.QPAttrSQPSN
	if qp.Type() == verbs.QPTypeRC {
		attr.Timeout, attr.RetryCnt, attr.RNRRetry, attr.MaxRdAtomic = 14, 7, 7, 1
		mask |= verbs.QPAttrTimeout | verbs.QPAttrRetryCnt | verbs.QPAttrRNRRetry | verbs.QPAttrMaxQPRdAtomic
	}
	check(qp.Modify(&attr, mask))
}

// E-17: from RESET to RTS step by step, for each type of QP. QP.Connect does this in one call.
func Example_e17ModifyQP() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(8, nil))
	defer closeAll(cq, pd)
	for _, t := range []verbs.QPType{verbs.QPTypeUD, verbs.QPTypeUC, verbs.QPTypeRC} {
		qp := must(pd.CreateQP(&verbs.QPInitAttr{Type: t, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
		toRTS(qp, qp.QPN()) // with itself
		fmt.Println(qp.Type(), qp.State())
		check(qp.Close())
	}
	// Output:
	// UD RTS
	// UC RTS
	// RC RTS
}

// E-20: the builder of work requests (ibv_wr_*): a send, and two RDMA WRITEs with immediate data that are posted
// together.
func Example_e20WorkRequestBuilder() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 256), verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	small := verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
	a := must(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: small, SigAll: true,
		SendOpsFlags: verbs.QPExWithSend | verbs.QPExWithRDMAWriteWithImm,
	}))
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: cq, RecvCQ: cq, Cap: small}))
	defer closeAll(a, b, mr, cq, pd)
	check(a.Connect(must(b.LocalInfo()), nil))
	check(b.Connect(must(a.LocalInfo()), nil))
	for i := range 3 {
		check(b.PostRecv(verbs.RecvWR{WRID: uint64(i), SGList: []verbs.SGE{mr.SGE(0, 32)}}))
	}

	x := must(a.Ex())
	x.Start()
	x.WRID, x.WRFlags = 10, 0
	x.Send()
	x.SetSGE(mr.SGE(64, 5))
	check(x.Complete())

	x.Start()
	for i := range 2 {
		x.WRID = uint64(11 + i)
		x.RDMAWriteImm(mr.RKey(), mr.Addr()+uint64(128+8*i), uint32(100+i))
		x.SetSGE(mr.SGE(64, 8))
	}
	check(x.Complete()) // posts both; Abort would discard them

	for _, wc := range poll(cq, 6) {
		if wc.Opcode == verbs.WCRecv || wc.Opcode == verbs.WCRecvRDMAWithImm {
			fmt.Println(wc.Opcode, wc.ByteLen, wc.ImmData)
		}
	}
	// Output:
	// RECV 5 0
	// RECV_RDMA_WITH_IMM 8 100
	// RECV_RDMA_WITH_IMM 8 101
}
