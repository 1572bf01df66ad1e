package conformance

import (
	"errors"

	"github.com/verbena-rdma/verbena/verbs"
)

// Completion queues with traffic (sections 21 and 44).
var queueCases = []testCase{
	{"V_CQ_04_V_CQ_05_V_KC_03_CompletionsGoToTheirQueuesCQ", eachItsCQ},
	{"V_CQ_09_V_CQ_11_V_CQ_14_ResizeLosesNothing", resizeKeeps},
	{"V_CQ_10_ResizeKeepsTheNotificationRequest", resizeKeepsArming},
	{"V_CQ_10_ResizeKeepsTheSolicitedRequest", resizeKeepsSolicited},
	{"V_CQ_18_ModerationReturnsTheActualValues", moderated},
	{"V_CQ_12_V_CQ_15_ResizeBelowTheContentFails", resizeTooSmall},
	{"V_CQ_22_D_16_DestroyedWithCompletionsOrArmed", destroyFull},
	{"V_POLL_01_V_POLL_02_V_POLL_03_OldestFirstAndRemoved", pollOrder},
	{"V_POLL_05_ValidFieldsOfAFailure", failureFields},
}

func eachItsCQ(t *T) {
	a, b := t.ends()
	third := a.cq(8, nil)
	q1, p1 := connect(a, b, verbs.QPTypeRC, nil)
	// the same CQ for both queues
	q2 := a.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SendCQ, init.RecvCQ = third, third })
	p2 := b.qp(verbs.QPTypeRC, nil)
	t.join(q2, p2, nil)
	for i, q := range []*verbs.QP{q1, q2} {
		t.must(q.PostRecv(a.recv(uint64(10+i), 0, 10)))
		t.must([]*verbs.QP{p1, p2}[i].PostRecv(b.recv(uint64(20+i), 0, 10)))
		t.must(q.PostSend(a.send(uint64(i), 0, 1)))
		t.must([]*verbs.QP{p1, p2}[i].PostSend(b.send(uint64(30+i), 0, 1)))
	}
	same(t, "sends of the first", t.ids(t.poll(a.sendCQ, 1), verbs.WCSuccess), "[0]")
	same(t, "receives of the first", t.ids(t.poll(a.rcvQ, 1), verbs.WCSuccess), "[10]")
	seen := map[uint64]verbs.WCOpcode{}
	for _, wc := range t.good(third, 2) {
		seen[wc.WRID] = wc.Opcode
		same(t, "qp_num", wc.QPNum, q2.QPN())
	}
	if len(seen) != 2 || seen[1] != verbs.WCSend || seen[11] != verbs.WCRecv {
		t.Errorf("completions of the second: %v", seen)
	}
	// One CQ serves several QPs.
	byQP := map[uint32]int{}
	for _, wc := range append(t.good(b.rcvQ, 2), t.good(b.sendCQ, 2)...) {
		byQP[wc.QPNum]++
	}
	if byQP[p1.QPN()] != 2 || byQP[p2.QPN()] != 2 {
		t.Errorf("completions by QP: %v", byQP)
	}
}

// onCQ returns a connected pair in which b receives into cq.
func onCQ(a, b *end, cq *verbs.CQ) (qa, qb *verbs.QP) {
	a.t.Helper()
	qa = a.qp(verbs.QPTypeRC, nil)
	qb = b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.RecvCQ = cq })
	a.t.join(qa, qb, nil)
	return qa, qb
}

// receive makes n messages arrive, in receives numbered from first, without polling for them.
func receive(a, b *end, qa, qb *verbs.QP, first, n int) {
	t := a.t
	t.Helper()
	for i := range n {
		t.must(qb.PostRecv(b.recv(uint64(first+i), 0, 10)))
		t.must(qa.PostSend(a.send(0, 0, 1)))
	}
	t.good(a.sendCQ, n) // acknowledged, so received
}

func resizeKeeps(t *T) {
	a, b := t.ends()
	cq := b.cq(8, nil)
	t.must(cq.Resize(16)) // without QPs
	qa, qb := onCQ(a, b, cq)
	t.must(cq.Resize(8)) // empty
	receive(a, b, qa, qb, 0, 3)
	t.must(cq.Resize(100))
	if cq.Cap() < 100 {
		t.Errorf("resized to %d, want at least 100", cq.Cap())
	}
	receive(a, b, qa, qb, 3, 20) // more than the old capacity
	t.must(cq.Resize(23))
	if cq.Cap() < 23 {
		t.Errorf("resized to %d, want at least 23", cq.Cap())
	}
	for i, wc := range t.good(cq, 23) {
		same(t, "wr_id", wc.WRID, uint64(i))
	}
	receive(a, b, qa, qb, 23, 5)
	same(t, "later", t.ids(t.poll(cq, 5), verbs.WCSuccess), "[23 24 25 26 27]")
}

func resizeKeepsArming(t *T) {
	a, b := t.ends()
	ch := closing(t, get(b.ctx.CreateCompChannel())(t))
	cq := b.cq(8, &verbs.CQOptions{Channel: ch})
	qa, qb := onCQ(a, b, cq)
	t.must(cq.ReqNotify(false))
	t.must(cq.Resize(64))
	t.asleep(ch, "nothing was received")
	receive(a, b, qa, qb, 0, 1)
	t.awake(ch, cq)
	t.good(cq, 1)
}

func resizeKeepsSolicited(t *T) {
	l := t.listener()
	t.must(l.cq.ReqNotify(true))
	t.must(l.cq.Resize(100))
	l.receive(1)
	t.asleep(l.ch, "it was not solicited")
	t.must(l.cq.Resize(200))
	l.receive(1)
	t.asleep(l.ch, "it was not solicited")
	wr := l.a.send(1, 0, 1)
	wr.Flags |= verbs.SendSolicited
	t.must(l.qb.PostRecv(l.b.recv(1, 0, 1)))
	t.must(l.qa.PostSend(wr))
	t.awake(l.ch, l.cq)
}

func moderated(t *T) {
	e := t.end()
	for _, want := range []verbs.ModerateCQ{{Count: 7, Period: 9}, {Count: 65535, Period: 65535}, {}} {
		attr := verbs.ModifyCQAttr{AttrMask: verbs.CQAttrModerate, Moderate: want}
		if err := e.sendCQ.Modify(&attr); errors.Is(err, verbs.ENOSYS) {
			t.Skip("the device does not moderate events")
		} else {
			t.must(err)
		}
		if attr.AttrMask != verbs.CQAttrModerate || attr.Moderate != want { // every value is valid
			t.Errorf("%+v, want %+v", attr, want)
		}
	}
}

func resizeTooSmall(t *T) {
	a, b := t.ends()
	cq := b.cq(16, nil)
	qa, qb := onCQ(a, b, cq)
	receive(a, b, qa, qb, 0, 9)
	room := cq.Cap()
	t.refused("9 completions into room for 4", cq.Resize(4), verbs.EINVAL)
	t.refused("0", cq.Resize(0), verbs.EINVAL)
	same(t, "the capacity", cq.Cap(), room)
	same(t, "its completions", t.ids(t.poll(cq, 9), verbs.WCSuccess), "[0 1 2 3 4 5 6 7 8]")
	t.must(cq.Resize(4))
	receive(a, b, qa, qb, 9, 1)
	t.good(cq, 1)
}

func destroyFull(t *T) {
	a, b := t.ends()
	ch := closing(t, get(b.ctx.CreateCompChannel())(t))
	cq := b.cq(16, &verbs.CQOptions{Channel: ch})
	qa, qb := onCQ(a, b, cq)
	receive(a, b, qa, qb, 0, 3)
	t.must(cq.ReqNotify(false))
	t.refused("closing a CQ that a QP uses", cq.Close(), verbs.EBUSY)
	t.must(qb.Close())
	t.must(cq.Close())
	t.asleep(ch, "the CQ is destroyed")
}

func pollOrder(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	receive(a, b, qa, qb, 0, 7)
	wcs := make([]verbs.WC, 20)
	same(t, "at most two", get(b.rcvQ.Poll(wcs[:2]))(t), 2)
	same(t, "all others", get(b.rcvQ.Poll(wcs[2:]))(t), 5)
	same(t, "then none", get(b.rcvQ.Poll(wcs[7:]))(t), 0)
	same(t, "in the order", t.ids(wcs[:7], verbs.WCSuccess), "[0 1 2 3 4 5 6]")
}

func failureFields(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qb.PostRecv(b.recv(21, 0, 5)))
	t.must(qa.PostSend(a.send(11, 0, 6))) // too long
	for _, c := range []struct {
		cq     *verbs.CQ
		id     uint64
		qp     *verbs.QP
		status verbs.WCStatus
	}{{a.sendCQ, 11, qa, verbs.WCRemInvReqErr}, {b.rcvQ, 21, qb, verbs.WCLocLenErr}} {
		wc := t.poll(c.cq, 1)[0]
		if wc.WRID != c.id || wc.QPNum != c.qp.QPN() || wc.Status != c.status || wc.Err() == nil || wc.Cause == nil {
			t.Errorf("completion %+v: %v", wc, wc.Err())
		}
	}
}
