package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// The state SQD, in which the send queue drains and then pauses (section 4).
var drainCases = []testCase{
	{"V_QPS_10_V_QPS_11_V_AE_16_SQDFinishesStartedRequests", drains},
	{"V_QPS_10_V_QPS_11_V_AE_16_SQDWithoutAcknowledgements", drainsAtOnce},
	{"V_QPS_12_V_QPS_09_AttributesChangeInSQD", changesInSQD},
	{"V_AE_16_InterruptedDrainRaisesTheEvent", drainInterrupted},
	{"V_AE_16_NoEventUnlessRequested", drainWithoutEvent},
}

func (t *T) toSQD(qp *verbs.QP, notify bool) {
	t.Helper()
	t.must(qp.Modify(&verbs.QPAttr{QPState: verbs.QPSSQD, EnSQDAsyncNotify: notify},
		verbs.QPAttrState|verbs.QPAttrEnSQDAsyncNotify))
}

func (t *T) draining(qp *verbs.QP) bool {
	t.Helper()
	attr, _, err := qp.Query(verbs.QPAttrState)
	t.must(err)
	return attr.SQDraining
}

// drained waits until the send queue pauses, which takes some devices a moment even if nothing was posted.
func (t *T) drained(qp *verbs.QP) {
	t.Helper()
	if !t.Await(func() bool { return !t.draining(qp) }, waitLimit) {
		t.Fatal("the send queue is still draining")
	}
}

func drains(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	first := p.expect(wire.SendOnly)
	t.toSQD(p.qp, true)
	same(t, "draining", t.draining(p.qp), true)
	t.must(p.qp.PostSend(e.send(2, 0, 10)))
	p.expectNothing("new requests wait in SQD")
	t.refused("SQD->RTS while it drains", p.qp.Modify(&verbs.QPAttr{QPState: verbs.QPSRTS}, verbs.QPAttrState),
		verbs.EINVAL)
	e.noEvent("it still drains")
	p.answer(wire.Ack, first.PSN, wire.SynAck, nil)
	if ev := e.event(); ev.Type != verbs.EventSQDrained || ev.QP != p.qp {
		t.Errorf("event %+v", ev)
	}
	same(t, "wr_id", t.good(e.sendCQ, 1)[0].WRID, 1)
	same(t, "draining", t.draining(p.qp), false)
	p.expectNothing("new requests wait in SQD")
	// The responder continues.
	t.must(p.qp.PostRecv(e.recv(3, 0, 10)))
	p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: true})
	t.good(e.rcvQ, 1)
	p.expect(wire.Ack)
	t.to(p.qp, verbs.QPSRTS)
	same(t, "the PSN of the second", p.expect(wire.SendOnly).PSN, (first.PSN+1)&0xffffff)
}

// drainsAtOnce pauses sends of UC and UD QPs.
func drainsAtOnce(t *T) {
	for _, typ := range []verbs.QPType{uc, ud} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		t.toSQD(qa, true)
		if ev := a.event(); ev.Type != verbs.EventSQDrained || ev.QP != qa {
			t.Errorf("event %+v", ev)
		}
		same(t, "draining", t.draining(qa), false)
		wr := a.send(1, 0, 10)
		if typ == ud {
			wr = a.datagram(qa, qb, wr)
		}
		t.must(qb.PostRecv(b.recv(1, 0, 100)))
		t.must(qa.PostSend(wr))
		t.silent("new requests wait in SQD", a.sendCQ, b.rcvQ)
		t.to(qa, verbs.QPSRTS)
		t.good(a.sendCQ, 1)
		t.good(b.rcvQ, 1)
	}
}

func changesInSQD(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.toSQD(p.qp, false)
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	other := e.rawPeerFor(p.qp) // another peer
	t.must(p.qp.Modify(&verbs.QPAttr{AHAttr: pathTo(p.qp, other.info().GID), RetryCnt: 3, Timeout: 21, MinRNRTimer: 7},
		verbs.QPAttrAV|verbs.QPAttrRetryCnt|verbs.QPAttrTimeout|verbs.QPAttrMinRNRTimer))
	attr, _, err := p.qp.Query(0)
	t.must(err)
	if attr.QPState != verbs.QPSSQD || attr.RetryCnt != 3 || attr.Timeout != 21 || attr.MinRNRTimer != 7 ||
		attr.AHAttr.GRH.DGID != other.info().GID {
		t.Errorf("attributes %+v", attr)
	}
	t.to(p.qp, verbs.QPSRTS)
	other.expect(wire.SendOnly) // paused sends go to the new path
	p.expectNothing("the path has changed")
}

func drainInterrupted(t *T) {
	for _, end := range []verbs.QPState{verbs.QPSErr, verbs.QPSReset} {
		e := t.end()
		p := e.rawPeer(verbs.QPTypeRC, slow)
		t.must(p.qp.PostSend(e.send(1, 0, 10)))
		p.expect(wire.SendOnly)
		t.toSQD(p.qp, true)
		e.noEvent("the queue still drains")
		t.to(p.qp, end)
		if ev := e.event(); ev.Type != verbs.EventSQDrained || ev.QP != p.qp {
			t.Errorf("%v: event %+v", end, ev)
		}
	}
}

func drainWithoutEvent(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.must(p.qp.PostSend(e.send(1, 0, 10)))
	first := p.expect(wire.SendOnly)
	t.to(p.qp, verbs.QPSSQD)
	p.answer(wire.Ack, first.PSN, wire.SynAck, nil)
	t.good(e.sendCQ, 1)
	e.noEvent("no event was requested")
	same(t, "draining", t.draining(p.qp), false)
	t.to(p.qp, verbs.QPSRTS)
}
