package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Queue pairs: signalling, attributes, timers, destruction (sections 32 to 36).
var qpCases = []testCase{
	{"V_QP_10_D_01_V_SEND_12_Signalling", signalling},
	{"V_QP_12_InlineLimitByTrying", inlineByTrying},
	{"V_QP_14_V_MR_12_V_SEND_11_InlineNeedsNoRegistration", inlineUnregistered},
	{"V_QPQ_02_V_QPQ_04_V_QPQ_11_QueryReturnsWhatModifySet", queryAfterModify},
	{"V_QPQ_05_StructsBelongToTheCaller", callersStructs},
	{"V_QPQ_03_D_35_AttributesStayUnderTraffic", attributesStay},
	{"V_QPQ_06_Timeout0NeverRetransmits", timeoutZero},
	{"V_QPQ_06_RetryCntAndTimeout", retries},
	{"V_QPQ_06_RNRRetry7IsUnlimited", rnrForEver},
	{"V_QPQ_07_D_09_MinRNRTimerIsForMissingReceives", minRNRTimer},
	{"V_QPD_02_V_QPD_01_DestroyedRequestsDoNotComplete", destroyWithRequests},
	{"V_QPD_03_DestroyLeavesTheCQUsable", destroyWithCompletions},
}

func signalling(t *T) {
	a, b := t.ends()
	quiet, loud := a.qp(verbs.QPTypeRC, nil), a.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SigAll = true })
	qb, qc := b.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
	t.join(quiet, qb, nil)
	t.join(loud, qc, nil)
	unsignaled := func(id uint64) verbs.SendWR {
		wr := a.rdma(verbs.WRRDMAWrite, id, b, 0, 8)
		wr.Flags = 0
		return wr
	}
	t.must(quiet.PostSend(unsignaled(1), unsignaled(2), a.rdma(verbs.WRRDMAWrite, 3, b, 0, 8), unsignaled(4)))
	b.counted("rx_write_requests", 4)
	same(t, "sq_sig_all 0", t.ids(t.poll(a.sendCQ, 1), verbs.WCSuccess), "[3]")
	t.silent("the others are not signaled", a.sendCQ)
	t.must(loud.PostSend(unsignaled(5), unsignaled(6)))
	same(t, "sq_sig_all 1", t.ids(t.poll(a.sendCQ, 2), verbs.WCSuccess), "[5 6]")
	// X-SEND-01: a later signaled request frees the slots of unsignaled ones.
	_, init, err := quiet.Query(0)
	t.must(err)
	for range int(init.Cap.MaxSendWR) - 1 - 1 { // request 4 occupies one
		t.must(quiet.PostSend(unsignaled(7)))
	}
	t.must(quiet.PostSend(a.rdma(verbs.WRRDMAWrite, 8, b, 0, 8)))
	t.refused("a full queue", quiet.PostSend(unsignaled(9)), verbs.ENOMEM)
	t.good(a.sendCQ, 1)
	for range init.Cap.MaxSendWR {
		t.must(quiet.PostSend(unsignaled(9)))
	}
	t.refused("a full queue", quiet.PostSend(unsignaled(9)), verbs.ENOMEM)
	// Failed requests complete even if unsignaled.
	bad := unsignaled(10)
	bad.RKey ^= 0x55
	t.must(loud.PostSend(bad))
	same(t, "a failure", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemAccessErr)
	t.to(quiet, verbs.QPSErr)
}

// widestInline creates a QP with the largest inline size that the device supports.
func (e *end) widestInline(typ verbs.QPType) (*verbs.QP, int) {
	e.t.Helper()
	init := verbs.QPInitAttr{Type: typ, SendCQ: e.sendCQ, RecvCQ: e.rcvQ,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 4, MaxRecvSGE: 4}}
	for n := uint32(1 << 20); n > 0; n /= 2 {
		init.Cap.MaxInlineData = n
		if qp, err := e.pd.CreateQP(&init); err == nil {
			return closing(e.t, qp), int(init.Cap.MaxInlineData)
		} else {
			e.t.refused("a large inline size", err, verbs.EINVAL)
		}
	}
	e.t.Fatal("the device does not support inline data")
	return nil, 0
}

func inlineByTrying(t *T) {
	a, b := t.ends()
	qa, limit := a.widestInline(verbs.QPTypeRC)
	if limit < 64 {
		t.Errorf("only %d bytes of inline data", limit)
	}
	qb := b.qp(verbs.QPTypeRC, nil)
	t.join(qa, qb, nil)
	t.must(qb.PostRecv(b.recv(1, 0, memory)))
	wr := verbs.SendWR{Opcode: verbs.WRSend, Flags: verbs.SendInline | verbs.SendSignaled, Inline: a.buf[:limit]}
	t.must(qa.PostSend(wr))
	same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(limit))
	t.equal("the message", b.buf[:limit], a.buf[:limit])
	wr.Inline = a.buf[:limit+1]
	t.refused("one byte more", qa.PostSend(wr), verbs.EINVAL)
}

func inlineUnregistered(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		data := []byte("this is not registered")
		for _, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRSendWithImm, verbs.WRRDMAWrite, verbs.WRRDMAWriteWithImm} {
			if typ == verbs.QPTypeUD && op != verbs.WRSend && op != verbs.WRSendWithImm {
				continue
			}
			b.blank()
			t.must(qb.PostRecv(b.recv(1, 0, 100)))
			wr := a.rdma(op, 1, b, 0, 0)
			wr.Flags |= verbs.SendInline
			wr.SGList, wr.Inline = nil, append([]byte(nil), data...)
			at := 0
			if typ == verbs.QPTypeUD {
				wr, at = a.datagram(qa, qb, wr), 40
			}
			t.must(qa.PostSend(wr))
			clear(wr.Inline) // V-SEND-03: the data was copied
			t.good(a.sendCQ, 1)
			if op != verbs.WRRDMAWrite {
				t.good(b.rcvQ, 1)
			} else {
				t.Await(func() bool { return b.buf[0] != canary }, waitLimit)
				t.must(qa.PostSend(a.rdma(verbs.WRRDMAWriteWithImm, 2, b, 9000, 1))) // consumes the receive
				t.good(a.sendCQ, 1)
				t.good(b.rcvQ, 1)
			}
			t.equal(op.String(), b.buf[at:at+len(data)], data)
		}
	}
}

func queryAfterModify(t *T) {
	a, b := t.ends()
	qp := a.qp(verbs.QPTypeRC, nil)
	peer := t.info(b.qp(verbs.QPTypeRC, nil))
	check := func(state verbs.QPState, wrong func(*verbs.QPAttr) bool) {
		t.Helper()
		attr, _, err := qp.Query(verbs.QPAttrState)
		t.must(err)
		if attr.QPState != state || wrong(&attr) {
			t.Errorf("in %v: %+v", state, attr)
		}
	}
	check(verbs.QPSReset, func(*verbs.QPAttr) bool { return false })
	toInit(qp, verbs.AccessRemoteRead)
	inInit := func(a *verbs.QPAttr) bool {
		return a.PortNum != 1 || a.PKeyIndex != 0 || a.QPAccessFlags != verbs.AccessRemoteRead
	}
	check(verbs.QPSInit, inInit)
	peer.PSN, peer.MTU = 0xabcdef, verbs.MTU512
	toRTR(qp, peer, 17)
	inRTR := func(a *verbs.QPAttr) bool {
		return inInit(a) || a.PathMTU != verbs.MTU512 || a.DestQPNum != peer.QPN || a.RQPSN != 0xabcdef ||
			a.MaxDestRdAtomic != 4 ||
			a.MinRNRTimer != 17 || a.AHAttr.GRH.DGID != peer.GID || !a.AHAttr.IsGlobal || a.AHAttr.GRH.HopLimit != 64
	}
	check(verbs.QPSRTR, inRTR)
	mustModify(qp, &verbs.QPAttr{QPState: verbs.QPSRTS, SQPSN: 0x123456, Timeout: 13, RetryCnt: 3, RNRRetry: 5,
		MaxRdAtomic: 2}, rtsMask)
	inRTS := func(a *verbs.QPAttr) bool {
		return inRTR(a) || a.SQPSN != 0x123456 || a.Timeout != 13 || a.RetryCnt != 3 || a.RNRRetry != 5 || a.MaxRdAtomic != 2
	}
	check(verbs.QPSRTS, inRTS)
	t.toSQD(qp, false)
	check(verbs.QPSSQD, inRTS)
	t.to(qp, verbs.QPSErr)
	check(verbs.QPSErr, func(*verbs.QPAttr) bool { return false })

	ud := a.qp(verbs.QPTypeUD, nil)
	t.must(ud.Connect(verbs.QPInfo{}, &verbs.ConnectOptions{QKey: 0x12345678}))
	attr, _, err := ud.Query(0)
	t.must(err)
	if attr.QPState != verbs.QPSRTS || attr.QKey != 0x12345678 || attr.PortNum != 1 || attr.SQPSN != t.info(ud).PSN {
		t.Errorf("UD in RTS: %+v", attr)
	}
}

// callersStructs changes the structs after the calls, which must not affect the QP.
func callersStructs(t *T) {
	e := t.end()
	given := verbs.QPInitAttr{Type: rc, SendCQ: e.sendCQ, RecvCQ: e.rcvQ,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxRecvWR: 4, MaxRecvSGE: 1}}
	qp := closing(t, get(e.pd.CreateQP(&given))(t))
	set := verbs.QPAttr{QPState: verbs.QPSInit, PortNum: 1, QPAccessFlags: verbs.AccessRemoteRead}
	t.must(qp.Modify(&set, initMask))
	attr, init, err := qp.Query(0)
	t.must(err)
	was, wasInit := attr, init
	wipe(&given)
	wipe(&set)
	wipe(&attr)
	wipe(&init)
	again, initAgain, err := qp.Query(0)
	t.must(err)
	if again != was || initAgain != wasInit {
		t.Errorf("%+v and %+v became %+v and %+v", was, wasInit, again, initAgain)
	}
}

func wipe[V any](v *V) { *v = *new(V) }

func attributesStay(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	before, _, err := qa.Query(0)
	t.must(err)
	receive(a, b, qa, qb, 0, 10)
	t.must(qa.PostSend(a.rdma(verbs.WRRDMARead, 1, b, 0, 5000)))
	t.good(a.sendCQ, 1)
	after, _, err := qa.Query(0)
	t.must(err)
	same(t, "attributes", after, before)
}

func timeoutZero(t *T) {
	e := t.end()
	p := e.rawPeerFor(e.qp(verbs.QPTypeRC, nil))
	toInit(p.qp, allAccess)
	toRTR(p.qp, p.info(), 12)
	mustModify(p.qp, &verbs.QPAttr{QPState: verbs.QPSRTS, RetryCnt: 7, RNRRetry: 7, Timeout: 0}, rtsMask)
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	f := p.expect(wire.SendOnly)
	t.Pause(4 * moment)
	p.expectNothing("timeout 0 never expires")
	t.silent("the request waits", e.sendCQ)
	t.is(p.qp, verbs.QPSRTS)
	p.answer(wire.Ack, f.PSN, wire.SynAck, nil)
	t.good(e.sendCQ, 1)
}

func retries(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 9, RetryCnt: 3}) // 2 ms
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	first := p.expect(wire.SendOnly)
	for range 3 {
		same(t, "the retransmitted PSN", p.expect(wire.SendOnly).PSN, first.PSN)
	}
	wc := t.poll(e.sendCQ, 1)[0]
	if wc.Status != verbs.WCRetryExcErr || wc.Cause.Retries != 3 || wc.Cause.Heard {
		t.Errorf("completion %+v, cause %+v", wc, wc.Cause)
	}
	if least := 4 * verbs.AckTimeout(9); wc.Cause.Elapsed < least {
		t.Errorf("gave up after %v; a timeout and 3 retries take %v at least", wc.Cause.Elapsed, least)
	}
	p.expectNothing("the QP is in ERR")
}

func rnrForEver(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 22, RNRRetry: 7, RetryCnt: 1})
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	for range 20 { // more than any finite count
		f := p.expect(wire.SendOnly)
		p.answer(wire.Ack, f.PSN, wire.SynRNR|1, nil)
	}
	p.answer(wire.Ack, p.expect(wire.SendOnly).PSN, wire.SynAck, nil)
	t.good(e.sendCQ, 1)
}

func minRNRTimer(t *T) {
	for _, code := range []uint8{0, 1, 12, 31} {
		e := t.end()
		p := e.rawPeerFor(e.qp(verbs.QPTypeRC, nil))
		toInit(p.qp, allAccess)
		toRTR(p.qp, p.info(), code)
		p.put(p.packet(wire.Fields{Opcode: wire.SendOnly, AckReq: true}).Build())
		same(t, "the RNR NAK", p.expect(wire.Ack).Syndrome, wire.SynRNR|code)
		t.must(p.qp.PostRecv(e.recv(1, 0, 10)))
		p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: true})
		same(t, "the answer", p.expect(wire.Ack).Syndrome, wire.SynAck)
		p.psn = (p.psn + 1) & 0xffffff // skip a PSN
		p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: true})
		same(t, "another NAK", p.expect(wire.Ack).Syndrome, wire.SynSeqErr)
	}
	// The requester waits for the time in the NAK.
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 22, RNRRetry: 1, MinRNRTimer: 20}) // 10.24 ms
	t.must(qa.PostSend(a.send(1, 0, 10)))
	wc := t.poll(a.sendCQ, 1)[0]
	if wc.Status != verbs.WCRNRRetryExcErr || wc.Cause.Elapsed < verbs.RNRDelay(20) {
		t.Errorf("completion %+v after %v, want RNR_RETRY_EXC_ERR after %v", wc, wc.Cause.Elapsed, verbs.RNRDelay(20))
	}
	t.is(qb, verbs.QPSRTS)
}

func destroyWithRequests(t *T) {
	for _, state := range []verbs.QPState{verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD} {
		e := t.end()
		p := e.rawPeerFor(e.qp(verbs.QPTypeRC, nil))
		toInit(p.qp, allAccess)
		t.must(p.qp.PostRecv(e.recv(1, 0, 10)))
		if state >= verbs.QPSRTR {
			toRTR(p.qp, p.info(), 12)
		}
		if state >= verbs.QPSRTS {
			mustModify(p.qp, &verbs.QPAttr{QPState: verbs.QPSRTS, Timeout: 22}, rtsMask)
			t.must(p.qp.PostSend(e.send(2, 0, 10), e.send(3, 0, 10)))
		}
		if state == verbs.QPSSQD {
			t.toSQD(p.qp, true)
		}
		t.must(p.qp.Close())
		t.silent("the QP is destroyed", e.sendCQ, e.rcvQ)
		t.refused("a send", p.qp.PostSend(e.send(4, 0, 1)), verbs.EINVAL)
	}
}

func destroyWithCompletions(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	q2, q3 := connect(a, b, verbs.QPTypeRC, nil)
	receive(a, b, qa, qb, 0, 3)
	receive(a, b, q2, q3, 10, 2)
	t.must(qb.Close())
	// Completions of qb may be discarded, those of the other QP must not.
	var others []verbs.WC
	t.Await(func() bool {
		var wcs [8]verbs.WC
		for _, wc := range wcs[:get(b.rcvQ.Poll(wcs[:]))(t)] {
			if wc.QPNum == q3.QPN() {
				others = append(others, wc)
			}
		}
		return len(others) == 2
	}, waitLimit)
	same(t, "completions of the other QP", t.ids(others, verbs.WCSuccess), "[10 11]")
	receive(a, b, q2, q3, 20, 1)
	t.good(b.rcvQ, 1)
}
