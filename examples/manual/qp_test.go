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
	attr := verbs.QPAttr{QPState: verbs.QPSInit, PKeyIndex: 0, PortNum: 1}
	mask := verbs.QPAttrState | verbs.QPAttrPKeyIndex | verbs.QPAttrPort
	if qp.Type() == verbs.QPTypeUD {
		attr.QKey = 0x22222222
		mask |= verbs.QPAttrQKey
	} else {
		attr.QPAccessFlags = 0 // no rights for the peer
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

// E-17: from RESET to RTS step by step, for each type of QP. QP.Connect does this in one call. The manual's samples
// have the peer's LID; RoCE needs its GID.
func Example_e17ModifyQP() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	cq := must(vctx.CreateCQ(8, nil))
	defer closeAll(cq, pd)
	for _, t := range []verbs.QPType{verbs.QPTypeUD, verbs.QPTypeUC, verbs.QPTypeRC} {
		qp := must(pd.CreateQP(&verbs.QPInitAttr{Type: t, SendCQ: cq, RecvCQ: cq, Cap: sizes}))
		toRTS(qp, qp.QPN()) // with itself
		attr, _, err := qp.Query(verbs.QPAttrQKey | verbs.QPAttrAccessFlags)
		check(err)
		fmt.Printf("%v %v, Q_Key %#x, access %d\n", t, qp.State(), attr.QKey, attr.QPAccessFlags)
		check(qp.Close())
	}
	// Output:
	// UD RTS, Q_Key 0x22222222, access 0
	// UC RTS, Q_Key 0x0, access 0
	// RC RTS, Q_Key 0x0, access 0
}

// E-20: the builder of work requests (ibv_wr_*): a simple send; then a WRITE and a WRITE with immediate data that are
// posted together. Only the last of them has a completion of the sender.
func Example_e20WorkRequestBuilder() {
	vctx, done := open()
	defer done()
	pd := must(vctx.AllocPD())
	sent, received := must(vctx.CreateCQ(4, nil)), must(vctx.CreateCQ(4, nil))
	buf := make([]byte, 64)
	mr := must(pd.RegMR(buf, verbs.AccessLocalWrite|verbs.AccessRemoteWrite))
	small := verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}
	a := must(pd.CreateQP(&verbs.QPInitAttr{
		Type: verbs.QPTypeRC, SendCQ: sent, RecvCQ: sent, Cap: small,
		SendOpsFlags: verbs.QPExWithSend | verbs.QPExWithRDMAWrite | verbs.QPExWithRDMAWriteWithImm,
	}))
	b := must(pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeRC, SendCQ: received, RecvCQ: received, Cap: small}))
	defer closeAll(a, b, mr, sent, received, pd)
	connect(a, b)
	for range 2 {
		check(b.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{mr.SGE(0, 16)}}))
	}
	copy(buf[16:], "hello")

	x := must(a.Ex())
	x.Start()
	x.WRID, x.WRFlags = 1, 0
	x.Send()
	x.SetSGE(mr.SGE(16, 5))
	check(x.Complete())

	const first, second = 2, 3 // the requests' IDs
	x.Start()
	x.WRID = first
	x.RDMAWrite(mr.RKey(), mr.Addr()+32)
	x.SetSGE(mr.SGE(16, 4))
	x.WRID = second
	x.WRFlags = verbs.SendSignaled
	x.RDMAWriteImm(mr.RKey(), mr.Addr()+36, 0x1234) // in host order
	x.SetSGE(mr.SGE(20, 1))
	check(x.Complete()) // posts both; Abort would discard them

	for _, wc := range poll(received, 2) {
		fmt.Printf("%v of %d bytes, immediate data %#x\n", wc.Opcode, wc.ByteLen, wc.ImmData)
	}
	for _, wc := range poll(sent, 1) {
		fmt.Printf("%v, request %d\n", wc.Opcode, wc.WRID)
	}
	fmt.Printf("%s %s\n", buf[:5], buf[32:37])
	// Output:
	// RECV of 5 bytes, immediate data 0x0
	// RECV_RDMA_WITH_IMM of 1 bytes, immediate data 0x1234
	// RDMA_WRITE, request 3
	// hello hello
}
