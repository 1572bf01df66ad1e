package conformance

import (
	"github.com/verbena-rdma/verbena/verbs"
)

// Destruction of objects in use, and the numbers of QPs.
var endCases = []testCase{
	{"V_CQ_19_V_SRQ_19_V_CC_05_V_PD_03_FailedDestroyLeavesAllUsable", failedDestroy},
	{"V_QP_11_NumbersAreDistinct", distinctNumbers},
}

func failedDestroy(t *T) {
	a, b := t.ends()
	ch := closing(t, get(b.ctx.CreateCompChannel())(t))
	cq := b.cq(16, &verbs.CQOptions{Channel: ch})
	srq := b.srq(8)
	qa := a.qp(rc, nil)
	qb := b.qp(rc, func(i *verbs.QPInitAttr) { i.RecvCQ, i.SRQ = cq, srq })
	t.join(qa, qb, nil)
	for range 3 {
		for name, o := range map[string]interface{ Close() error }{"the CQ": cq, "the SRQ": srq, "the channel": ch,
			"the PD": b.pd, "the context": b.ctx} {
			t.refused("destroying "+name, o.Close(), verbs.EBUSY)
		}
		t.must(srq.PostRecv(b.recv(1, 0, 10)))
		t.must(cq.ReqNotify(false))
		t.must(qa.PostSend(a.send(2, 0, 7)))
		t.awake(ch, cq)
		same(t, "byte_len", t.good(cq, 1)[0].ByteLen, 7)
		t.good(a.sendCQ, 1)
		t.must(b.region(make([]byte, 8), allAccess).Close())
		t.is(qb, verbs.QPSRTS)
	}
	for _, o := range []interface{ Close() error }{qb, cq, srq, ch} { // no longer in use
		t.must(o.Close())
	}
}

// distinctNumbers creates QPs of every type in two contexts of a device, and destroys others at the same
// time.
func distinctNumbers(t *T) {
	e := t.end()
	other := t.endOf(closing(t, get(e.ctx.Device().Open())(t)))
	taken := map[uint32]*verbs.QP{}
	for i := range 200 {
		for _, e := range []*end{e, other} {
			qp := get(e.pd.CreateQP(&verbs.QPInitAttr{Type: []verbs.QPType{rc, uc, ud}[i%3], SendCQ: e.sendCQ,
				RecvCQ: e.rcvQ}))(t)
			n := qp.QPN()
			if n < 2 || n >= 1<<24-1 || taken[n] != nil { // 0 and 1 are reserved for management, the last one for multicast
				t.Errorf("QP %d has number %#x, which is reserved or in use", i, n)
			}
			if i%4 == 0 {
				t.must(qp.Close())
				continue
			}
			taken[n] = closing(t, qp)
		}
	}
}
