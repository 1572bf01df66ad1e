package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// The behaviour of a QP in each state (section 4).
var stateCases = []testCase{
	{"V_QPS_03_ResetClearsQueuesAndCompletions", resetClears},
	{"V_QPS_05_InitAndResetDropSilently", dropsInSilence},
	{"V_QPS_06_ReceivesOfInitWaitForRTR", receivesOfInit},
	{"V_QPS_08_V_QPM_10_RTRAnswersAndStays", rtrAnswers},
	{"V_QPS_14_V_QPS_13_SendsFailInSQEReceivesGoOn", sendsFailInSQE},
	{"V_QPS_15_V_QPS_16_FailedSendFlushesBothQueues", failedSend},
	{"V_QPS_15_V_QPS_16_FailedReceiveFlushesBothQueues", failedReceive},
	{"V_QPS_17_V_QPS_19_X_QPS_01_ErrFlushesEveryRequest", errFlushes},
	{"V_QPS_18_ErrDropsSilently", errDrops},
	{"V_QPS_21_DestroyedQPsDropSilently", destroyedDrops},
	{"X_QPS_02_RequestsOfAnSRQAreNotFlushed", srqIsNotFlushed},
}

func resetClears(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	// Two completions that are not polled, and requests in both queues.
	t.must(qb.PostRecv(b.recv(1, 0, 10), b.recv(2, 0, 10)))
	t.must(qa.PostSend(a.send(1, 0, 1)))
	b.counted("rx_data_bytes", 1)
	t.must(qb.PostSend(b.send(3, 0, 1))) // without a receive
	t.to(qb, verbs.QPSReset)
	t.silent("RESET discards them", b.rcvQ, b.sendCQ)
	t.is(qb, verbs.QPSReset)
	t.refused("a receive in RESET", qb.PostRecv(b.recv(4, 0, 1)), verbs.EINVAL)
	// Both QPs start again with empty queues.
	t.good(a.sendCQ, 1)
	t.to(qa, verbs.QPSReset)
	t.join(qa, qb, nil)
	t.must(qb.PostRecv(b.recv(5, 0, 10)))
	t.must(qa.PostSend(a.send(6, 0, 7)))
	if wc := t.good(b.rcvQ, 1)[0]; wc.WRID != 5 || wc.ByteLen != 7 {
		t.Errorf("after RESET: %+v", wc)
	}
	t.good(a.sendCQ, 1)
}

// probe sends one packet of each kind that the QP must not answer.
func (p *rawPeer) probe() {
	for _, f := range []wire.Fields{
		{Opcode: wire.SendOnly, AckReq: true, Payload: []byte("probe")},
		{Opcode: wire.WriteOnly, AckReq: true, Addr: p.dev.mr.Addr(), RKey: p.dev.mr.RKey(), DMALen: 5,
			Payload: []byte("probe")},
		{Opcode: wire.ReadRequest, AckReq: true, Addr: p.dev.mr.Addr(), RKey: p.dev.mr.RKey(), DMALen: 5},
		{Opcode: wire.Ack, Syndrome: wire.SynAck},
	} {
		p.put(p.packet(f).Build())
	}
}

const probes = 4

func dropsInSilence(t *T) {
	e := t.end()
	p := e.rawPeerFor(e.qp(verbs.QPTypeRC, nil))
	e.blank()
	p.probe()
	e.counted("bad_state", probes)
	toInit(p.qp, allAccess)
	t.must(p.qp.PostRecv(e.recv(1, 0, 100)))
	p.probe()
	e.counted("bad_state", 2*probes)
	p.expectNothing("the QP is in INIT")
	t.silent("nothing is processed", e.rcvQ, e.sendCQ)
	if !untouched(e.buf) {
		t.Error("a packet was executed in RESET or INIT")
	}
	t.is(p.qp, verbs.QPSInit)
}

func receivesOfInit(t *T) {
	a, b := t.ends()
	qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, nil)
	toInit(qb, allAccess)
	t.must(qb.PostRecv(b.recv(1, 0, 10), b.recv(2, 0, 10)))
	t.silent("the QP is in INIT", b.rcvQ)
	t.join(qa, qb, nil)
	t.must(qa.PostSend(a.send(1, 0, 3), a.send(2, 0, 4)))
	same(t, "receives", t.ids(t.poll(b.rcvQ, 2), verbs.WCSuccess), "[1 2]")
}

func rtrAnswers(t *T) {
	e := t.end()
	p := e.rawPeerFor(e.qp(verbs.QPTypeRC, nil))
	toInit(p.qp, allAccess)
	t.must(p.qp.PostRecv(e.recv(1, 0, 100)))
	toRTR(p.qp, p.info(), 12)
	p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: true, Payload: []byte("hello")})
	same(t, "byte_len", t.good(e.rcvQ, 1)[0].ByteLen, 5)
	p.expect(wire.Ack)
	p.request(wire.Fields{Opcode: wire.ReadRequest, AckReq: true, Addr: e.mr.Addr(), RKey: e.mr.RKey(), DMALen: 5})
	same(t, "what was read", string(p.expect(wire.ReadRespOnly).Payload), "hello")
	t.refused("a send in RTR", p.qp.PostSend(e.send(1, 0, 1)), verbs.EINVAL)
	t.is(p.qp, verbs.QPSRTR)
}

func sendsFailInSQE(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeUC, verbs.QPTypeUD} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		to := func(from, dest *verbs.QP, e *end, wr verbs.SendWR) verbs.SendWR {
			if typ == verbs.QPTypeUD {
				return e.datagram(from, dest, wr)
			}
			return wr
		}
		t.must(qa.PostRecv(a.recv(11, 0, 100), a.recv(12, 0, 100)))
		bad := to(qa, qb, a, a.send(1, 0, 10))
		bad.SGList[0].LKey ^= 0x55
		later := to(qa, qb, a, a.send(2, 0, 10))
		later.Flags = 0
		t.must(qa.PostSend(bad, later))
		wcs := t.poll(a.sendCQ, 2)
		same(t, "the bad send", wcs[0].Status, verbs.WCLocProtErr)
		same(t, "the next send", wcs[1].Status, verbs.WCWRFlushErr)
		t.is(qa, verbs.QPSSQE)
		t.must(qa.PostSend(later))
		same(t, "posted in SQE", t.poll(a.sendCQ, 1)[0].Status, verbs.WCWRFlushErr)
		// Receives continue.
		t.must(qb.PostSend(to(qb, qa, b, b.send(3, 0, 20))))
		same(t, "wr_id of the receive", t.good(a.rcvQ, 1)[0].WRID, 11)
		t.is(qa, verbs.QPSSQE)
		a.noEvent("the completion reports SQE")
		// The QP returns to RTS.
		t.must(qb.PostRecv(b.recv(4, 0, 100)))
		t.to(qa, verbs.QPSRTS)
		t.must(qa.PostSend(to(qa, qb, a, a.send(5, 0, 30))))
		t.good(a.sendCQ, 1)
		t.good(b.rcvQ, 1)
		t.silent("nothing was sent in SQE", b.rcvQ)
	}
}

func failedSend(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qa.PostRecv(a.recv(11, 0, 10), a.recv(12, 0, 10)))
	bad := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 10)
	bad.RKey ^= 0x55
	quiet := a.send(2, 0, 10)
	quiet.Flags = 0
	t.must(qa.PostSend(bad, quiet))
	wcs := t.poll(a.sendCQ, 2)
	same(t, "the first send", wcs[0].Status, verbs.WCRemAccessErr)
	same(t, "the second send", wcs[1].Status, verbs.WCWRFlushErr)
	same(t, "the other queue", t.ids(t.poll(a.rcvQ, 2), verbs.WCWRFlushErr), "[11 12]")
	t.is(qa, verbs.QPSErr)
	t.must(qa.PostSend(quiet))
	t.must(qa.PostRecv(a.recv(13, 0, 10)))
	same(t, "sends posted later", t.ids(t.poll(a.sendCQ, 1), verbs.WCWRFlushErr), "[2]")
	same(t, "receives posted later", t.ids(t.poll(a.rcvQ, 1), verbs.WCWRFlushErr), "[13]")
}

func failedReceive(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC, verbs.QPTypeUD} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		bad := b.recv(11, 0, 100)
		bad.SGList[0].LKey ^= 0x55
		t.must(qb.PostRecv(bad, b.recv(12, 0, 100)))
		wr := a.send(1, 0, 10)
		if typ == verbs.QPTypeUD {
			wr = a.datagram(qa, qb, wr)
		}
		t.must(qa.PostSend(wr))
		wcs := t.poll(b.rcvQ, 2)
		same(t, "the first receive", wcs[0].Status, verbs.WCLocProtErr)
		same(t, "the second receive", wcs[1].Status, verbs.WCWRFlushErr)
		t.is(qb, verbs.QPSErr)
		late := b.send(21, 0, 10)
		if typ == verbs.QPTypeUD {
			late = b.datagram(qb, qa, late)
		}
		t.must(qb.PostSend(late))
		t.must(qb.PostRecv(b.recv(13, 0, 10)))
		same(t, "sends posted later", t.ids(t.poll(b.sendCQ, 1), verbs.WCWRFlushErr), "[21]")
		same(t, "receives posted later", t.ids(t.poll(b.rcvQ, 1), verbs.WCWRFlushErr), "[13]")
	}
}

func errFlushes(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, slow)
	for i := range 5 {
		quiet := a.send(uint64(i), 0, 10) // its receives are never posted
		quiet.Flags = 0
		t.must(qa.PostSend(quiet))
		t.must(qa.PostRecv(a.recv(uint64(10+i), 0, 10)))
	}
	t.Pause(moment)
	t.to(qa, verbs.QPSErr)
	same(t, "sends", t.ids(t.poll(a.sendCQ, 5), verbs.WCWRFlushErr), "[0 1 2 3 4]")
	same(t, "receives", t.ids(t.poll(a.rcvQ, 5), verbs.WCWRFlushErr), "[10 11 12 13 14]")
	t.silent("each is flushed once", a.sendCQ, a.rcvQ)
}

func errDrops(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	e.blank()
	t.to(p.qp, verbs.QPSErr)
	p.probe()
	e.counted("bad_state", probes)
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	t.must(p.qp.PostRecv(e.recv(2, 0, 10)))
	same(t, "sends", t.ids(t.poll(e.sendCQ, 1), verbs.WCWRFlushErr), "[1]")
	same(t, "receives", t.ids(t.poll(e.rcvQ, 1), verbs.WCWRFlushErr), "[2]")
	p.expectNothing("the QP is in ERR")
	if !untouched(e.buf) {
		t.Error("a packet was executed in ERR")
	}
}

func destroyedDrops(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	e.blank()
	keep := e.qp(verbs.QPTypeRC, nil) // keeps the device active
	t.must(p.qp.Close())
	p.probe()
	e.counted("unknown_qpn", probes)
	p.expectNothing("the QP is destroyed")
	if !untouched(e.buf) {
		t.Error("a packet was executed without a QP")
	}
	t.is(keep, verbs.QPSReset)
}

func srqIsNotFlushed(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
	q2, qc := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
	t.join(qa, qb, nil)
	t.join(q2, qc, nil)
	t.must(srq.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100)))
	t.to(qb, verbs.QPSErr)
	if ev := b.event(); ev.Type != verbs.EventQPLastWQEReached || ev.QP != qb {
		t.Errorf("event %+v", ev)
	}
	t.silent("the receives belong to the SRQ", b.rcvQ)
	t.must(q2.PostSend(a.send(1, 0, 10), a.send(1, 0, 10)))
	same(t, "the receives of the other QP", t.ids(t.poll(b.rcvQ, 2), verbs.WCSuccess), "[1 2]")
}
