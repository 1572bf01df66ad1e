package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/verbs"
)

// Receives (section 42).
var recvCases = []testCase{
	{"V_RECV_01_V_RECV_08_RequestsBeforeABadOneArePosted", postedBeforeBad},
	{"V_RECV_04_ReusableAfterTheCompletion", recvReuse},
	{"V_RECV_05_AQPWithSRQHasNoReceivesOfItsOwn", noOwnReceives},
	{"X_RECV_01_SizesOfReceives", recvSizes},
	{"X_RECV_02_SRQReceivesNameTheirQP", srqReceiveNames},
}

func postedBeforeBad(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	qs, _ := sharing(a, b, srq, verbs.QPTypeRC)
	bad := b.recv(3, 0, 1)
	bad.SGList = make([]verbs.SGE, 33)
	for _, c := range []struct {
		post func(...verbs.RecvWR) error
		from *verbs.QP
	}{{qb.PostRecv, qa}, {srq.PostRecv, qs[0]}} {
		err := c.post(b.recv(1, 0, 10), b.recv(2, 0, 10), bad, b.recv(4, 0, 10))
		t.refused("a bad receive", err, verbs.EINVAL)
		t.firstBad(err, 2)
		t.must(c.from.PostSend(a.send(1, 0, 1), a.send(2, 0, 1), a.send(3, 0, 1)))
		same(t, "receives", t.ids(t.poll(b.rcvQ, 2), verbs.WCSuccess), "[1 2]")
		t.silent("the receive behind the bad one was not posted", b.rcvQ)
	}
}

func recvReuse(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	for i := range 10 {
		a.buf[0] = byte(i)
		t.must(qb.PostRecv(b.recv(uint64(i), 0, 1)))
		t.must(qa.PostSend(a.send(1, 0, 1)))
		t.good(b.rcvQ, 1)
		same(t, "the byte", b.buf[0], byte(i))
		b.buf[0] = 0xff
		t.good(a.sendCQ, 1)
		same(t, "the byte after the completion", b.buf[0], 0xff)
	}
}

func noOwnReceives(t *T) {
	a, b := t.ends()
	srq := b.srq(4)
	qas, qbs := sharing(a, b, srq, verbs.QPTypeRC)
	t.refused("a receive of the QP's own", qbs[0].PostRecv(b.recv(1, 0, 10)), verbs.EINVAL)
	t.must(srq.PostRecv(b.recv(2, 0, 10)))
	t.must(qas[0].PostSend(a.send(1, 0, 1)))
	same(t, "wr_id", t.good(b.rcvQ, 1)[0].WRID, 2)
}

func recvSizes(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	none := verbs.RecvWR{WRID: 1}
	t.must(qb.PostRecv(none, b.recv(2, 0, 8), verbs.RecvWR{WRID: 3, SGList: []verbs.SGE{b.mr.SGE(0, 3), b.mr.SGE(3, 4)}}))
	t.must(qa.PostSend(a.send(1, 0, 0), a.send(2, 0, 8), a.send(3, 0, 8)))
	wcs := t.poll(b.rcvQ, 3)
	got := fmt.Sprint(wcs[0].Status.Name(), wcs[0].ByteLen, wcs[1].Status.Name(), wcs[1].ByteLen, wcs[2].Status.Name())
	same(t, "no SGE, the exact size, one byte less", got, fmt.Sprint("SUCCESS", 0, "SUCCESS", 8, "LOC_LEN_ERR"))
	same(t, "the sender", t.poll(a.sendCQ, 3)[2].Status, verbs.WCRemInvReqErr)
	_, init, err := qb.Query(0)
	t.must(err)
	t.to(qb, verbs.QPSReset)
	toInit(qb, allAccess)
	for range init.Cap.MaxRecvWR {
		t.must(qb.PostRecv(none))
	}
	t.refused("a full receive queue", qb.PostRecv(none), verbs.ENOMEM)
}

func srqReceiveNames(t *T) {
	a, b := t.ends()
	srq := b.srq(8)
	qas, qbs := sharing(a, b, srq, verbs.QPTypeRC, verbs.QPTypeRC)
	for i := range 4 {
		t.must(srq.PostRecv(b.recv(uint64(i), 0, 10)))
		t.must(qas[i%2].PostSend(a.send(1, 0, 1)))
		same(t, "qp_num", t.good(b.rcvQ, 1)[0].QPNum, qbs[i%2].QPN())
	}
}
