package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Shared receive queues with traffic (section 30).
var srqCases = []testCase{
	{"V_SRQ_04_X_RECV_02_D_04_OneSRQServesSeveralQPs", srqServes},
	{"V_SRQ_09_V_SRQ_12_V_SRQ_15_D_05_V_AE_20_LimitEventComesOnce", limitOnce},
	{"V_SRQ_10_TheLimitIsChangedAndRemovedWhileArmed", limitChanges},
	{"V_SRQ_11_LimitAboveThePostedReceives", limitAtOnce},
	{"V_SRQ_13_TheLoopOfTheManual", limitLoop},
	{"V_SRQ_18_DestroyedWithRequestsOrArmed", destroyArmed},
	{"V_AE_18_LastWQEReached", lastWQE},
	{"V_AE_18_LastWQEOfDatagramsAndOnce", lastWQEOnce},
	{"V_RECV_08_The40BytesOfADatagram", fortyBytesOfSRQ},
	{"V_QPD_02_V_QPS_03_V_AE_18_PartlyFilledReceiveIsReleasedWithItsQP", begunReceive},
}

// srq creates an SRQ for n requests.
func (e *end) srq(n uint32) *verbs.SRQ {
	e.t.Helper()
	return closing(e.t, get(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: n, MaxSGE: 2}}))(e.t))
}

// sharing connects pairs in which b's QPs use the SRQ.
func sharing(a, b *end, srq *verbs.SRQ, types ...verbs.QPType) (qas, qbs []*verbs.QP) {
	a.t.Helper()
	for _, typ := range types {
		qa, qb := a.qp(typ, nil), b.qp(typ, func(init *verbs.QPInitAttr) { init.SRQ = srq })
		a.t.join(qa, qb, nil)
		qas, qbs = append(qas, qa), append(qbs, qb)
	}
	return qas, qbs
}

func (t *T) arm(srq *verbs.SRQ, limit uint32) {
	t.Helper()
	t.must(srq.Modify(&verbs.SRQAttr{SRQLimit: limit}, verbs.SRQAttrLimit))
}

func (t *T) armed(srq *verbs.SRQ, want uint32) {
	t.Helper()
	same(t, "srq_limit", get(srq.Query())(t).SRQLimit, want)
}

func (e *end) limitReached(srq *verbs.SRQ) {
	e.t.Helper()
	if ev := e.event(); ev.Type != verbs.EventSRQLimitReached || ev.SRQ != srq {
		e.t.Errorf("event %+v", ev)
	}
}

func srqServes(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	qas, qbs := sharing(a, b, srq, verbs.QPTypeRC, verbs.QPTypeRC, verbs.QPTypeUD)
	for i := range 8 {
		t.must(srq.PostRecv(b.recv(uint64(i), 0, 100)))
	}
	t.refused("a full SRQ", srq.PostRecv(b.recv(9, 0, 1)), verbs.ENOMEM)
	for i := range 8 {
		wr := a.send(0, 0, 10)
		if i%3 == 2 {
			wr = a.datagram(qas[2], qbs[2], wr)
		}
		t.must(qas[i%3].PostSend(wr))
		wc := t.good(b.rcvQ, 1)[0]
		same(t, "wr_id", wc.WRID, uint64(i))
		same(t, "qp_num", wc.QPNum, qbs[i%3].QPN())
	}
	t.refused("a UC QP with an SRQ", func() error {
		_, err := b.pd.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeUC, SendCQ: b.sendCQ, RecvCQ: b.rcvQ, SRQ: srq})
		return err
	}(), verbs.EINVAL)
}

func limitOnce(t *T) {
	a, b := t.ends()
	srq := b.srq(16)
	qas, _ := sharing(a, b, srq, verbs.QPTypeRC)
	for i := range 6 {
		t.must(srq.PostRecv(b.recv(uint64(i), 0, 100)))
	}
	t.arm(srq, 4)
	t.must(qas[0].PostSend(a.send(0, 0, 1), a.send(0, 0, 1)))
	t.good(b.rcvQ, 2)
	b.noEvent("4 are left")
	t.armed(srq, 4)
	t.must(qas[0].PostSend(a.send(0, 0, 1)))
	b.limitReached(srq)
	t.armed(srq, 0)
	t.must(qas[0].PostSend(a.send(0, 0, 1), a.send(0, 0, 1)))
	t.good(b.rcvQ, 3)
	b.noEvent("the limit is no longer armed")
}

func limitChanges(t *T) {
	a, b := t.ends()
	srq := b.srq(16)
	qas, _ := sharing(a, b, srq, verbs.QPTypeRC)
	for i := range 6 {
		t.must(srq.PostRecv(b.recv(uint64(i), 0, 100)))
	}
	t.arm(srq, 6)
	t.arm(srq, 2)
	t.armed(srq, 2)
	t.must(qas[0].PostSend(a.send(0, 0, 1)))
	t.good(b.rcvQ, 1)
	b.noEvent("the limit was lowered")
	t.arm(srq, 0)
	t.must(qas[0].PostSend(a.send(0, 0, 1), a.send(0, 0, 1), a.send(0, 0, 1), a.send(0, 0, 1)))
	t.good(b.rcvQ, 4)
	b.noEvent("0 is no limit")
}

func limitAtOnce(t *T) {
	b := t.end()
	srq := b.srq(16)
	t.arm(srq, 1) // no receive is posted
	b.limitReached(srq)
	for i := range 3 {
		t.must(srq.PostRecv(b.recv(uint64(i), 0, 100)))
	}
	t.arm(srq, 3)
	b.noEvent("3 receives are not below the limit of 3")
	t.arm(srq, 4)
	b.limitReached(srq)
	t.armed(srq, 0)
}

func limitLoop(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	qas, _ := sharing(a, b, srq, verbs.QPTypeRC)
	posted, done := 0, 0
	post := func() {
		for ; posted < done+8; posted++ {
			t.must(srq.PostRecv(b.recv(uint64(posted), 0, 10)))
		}
		t.arm(srq, 4)
	}
	post()
	for range 3 {
		for range 5 {
			t.must(qas[0].PostSend(a.send(0, 0, 1)))
		}
		b.limitReached(srq)
		same(t, "receives", t.ids(t.poll(b.rcvQ, 5), verbs.WCSuccess),
			fmt.Sprint([]int{done, done + 1, done + 2, done + 3, done + 4}))
		done += 5
		t.good(a.sendCQ, 5)
		post()
	}
	b.noEvent("the limit was not reached again")
}

func destroyArmed(t *T) {
	b := t.end()
	srq := b.srq(8)
	qp := b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
	t.must(srq.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100)))
	t.arm(srq, 1)
	t.refused("closing an SRQ that a QP uses", srq.Close(), verbs.EBUSY)
	t.must(qp.Close())
	t.must(srq.Close())
	t.silent("the requests were discarded", b.rcvQ)
	b.noEvent("the SRQ is destroyed")
}

func lastWQE(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	t.must(srq.PostRecv(b.recv(1, 0, 100)))
	qas, qbs := sharing(a, b, srq, verbs.QPTypeRC, verbs.QPTypeRC)
	// The QP fails by itself: its receive completes first.
	bad := b.recv(0, 0, 100)
	bad.SGList[0].LKey ^= 0x55
	t.must(qas[0].PostSend(a.send(0, 0, 1)))
	t.good(b.rcvQ, 1)
	t.must(srq.PostRecv(bad))
	t.must(qas[0].PostSend(a.send(0, 0, 1)))
	if ev := b.event(); ev.Type != verbs.EventQPLastWQEReached || ev.QP != qbs[0] {
		t.Errorf("event %+v", ev)
	}
	same(t, "the last", t.poll(b.rcvQ, 1)[0].Status, verbs.WCLocProtErr)
	// Modify ends the QP without receives.
	t.to(qbs[1], verbs.QPSErr)
	if ev := b.event(); ev.Type != verbs.EventQPLastWQEReached || ev.QP != qbs[1] {
		t.Errorf("event %+v", ev)
	}
	t.must(srq.PostRecv(b.recv(2, 0, 100)))
	t.must(qas[1].PostSend(a.send(0, 0, 1)))
	t.silent("neither QP consumes receives", b.rcvQ)
}

func lastWQEOnce(t *T) {
	a, b := t.ends()
	srq := b.srq(4)
	_, qbs := sharing(a, b, srq, rc, ud)
	for _, qp := range qbs {
		t.to(qp, verbs.QPSErr)
		if ev := b.event(); ev.Type != verbs.EventQPLastWQEReached || ev.QP != qp {
			t.Errorf("event %+v", ev)
		}
		t.to(qp, verbs.QPSErr)
		b.noEvent("the QP was in ERR")
	}
}

func fortyBytesOfSRQ(t *T) {
	a, b := t.ends()
	srq := b.srq(4)
	qas, qbs := sharing(a, b, srq, ud)
	b.blank()
	t.must(srq.PostRecv(b.recv(1, 100, 50)))
	t.must(qas[0].PostSend(a.datagram(qas[0], qbs[0], a.send(1, 0, 10))))
	same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, 50)
	t.equal("the message", b.buf[140:150], a.buf[:10])
	if untouched(b.buf[100:140]) {
		t.Error("the GRH is missing")
	}
	if !untouched(b.buf[:100]) || !untouched(b.buf[150:]) {
		t.Error("more than the receive was written")
	}
}

// begunReceive ends QPs in the middle of a message. The SRQ gets the slot of the receive back, and the
// other receives serve other QPs.
func begunReceive(t *T) {
	e := t.end()
	srq := e.srq(1)
	room := int(get(srq.Query())(t).MaxWR)
	using := func(init *verbs.QPInitAttr) { init.SRQ = srq }
	for name, end := range map[string]func(qp *verbs.QP){
		"Close": func(qp *verbs.QP) { t.must(qp.Close()) },
		"RESET": func(qp *verbs.QP) { t.to(qp, verbs.QPSReset) },
		"ERR": func(qp *verbs.QP) {
			t.to(qp, verbs.QPSErr)
			same(t, "flushed", t.ids(t.poll(e.rcvQ, 1), verbs.WCWRFlushErr), "[0]")
			same(t, "event", e.event().Type, verbs.EventQPLastWQEReached)
		},
	} {
		p := e.rawPeerFor(e.qp(rc, using))
		t.must(p.qp.Connect(p.info(), longTimeout(slow)))
		for i := range room {
			t.must(srq.PostRecv(e.recv(uint64(i), 0, 4096)))
		}
		before := t.Counter(e.ctx, "rx_data_bytes")
		p.request(wire.Fields{Opcode: wire.SendFirst, Payload: full})
		e.counted("rx_data_bytes", before+uint64(len(full)))
		end(p.qp)
		t.silent("the QP was ended by "+name, e.rcvQ)
		if err := srq.PostRecv(e.recv(uint64(room), 0, 10)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		other := e.rawPeerFor(e.qp(rc, using))
		t.must(other.qp.Connect(other.info(), longTimeout(slow)))
		for i := range room {
			other.request(wire.Fields{Opcode: wire.SendOnly})
			same(t, name+": wr_id", t.good(e.rcvQ, 1)[0].WRID, uint64(i+1))
		}
		t.must(other.qp.Close())
		if name != "Close" {
			t.must(p.qp.Close())
		}
	}
}
