package soft_test

import (
	"errors"
	"testing"

	"github.com/verbena-rdma/verbena/verbs"
)

func newSRQ(t *testing.T, e *end, wrs, sges uint32) *verbs.SRQ {
	t.Helper()
	init := verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: wrs, MaxSGE: sges}}
	srq := get(e.pd.CreateSRQ(&init))(t)
	t.Cleanup(func() { must(t, srq.Close()) })
	if init.Attr.MaxWR < wrs || init.Attr.MaxSGE < sges { // V-SRQ-01
		t.Errorf("asked for %d and %d, got %+v", wrs, sges, init.Attr)
	}
	return srq
}

func TestV_SRQ_04_SeveralQPsTakeFromOneQueue(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		srq := newSRQ(t, b, 8, 2)
		shared := func(init *verbs.QPInitAttr) { init.SRQ = srq }
		var qas, qbs []*verbs.QP
		for range 3 {
			qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, shared)
			join(t, qa, qb, nil)
			qas, qbs = append(qas, qa), append(qbs, qb)
		}
		if err := qbs[0].PostRecv(recv(b, 1, 1)); !errors.Is(err, verbs.EINVAL) { // V-RECV-05
			t.Errorf("PostRecv of a QP with an SRQ: %v", err)
		}
		for i := range 8 {
			must(t, srq.PostRecv(recv(b, uint64(i), 100)))
		}
		if err := srq.PostRecv(recv(b, 9, 1)); !errors.Is(err, verbs.ENOMEM) { // X-RECV-02
			t.Errorf("posting to a full SRQ: %v", err)
		}
		for i := range 8 {
			must(t, qas[i%3].PostSend(send(a, 10)))
		}
		a.good(8)
		byQP := map[uint32]int{}
		for i, wc := range b.good(8) {
			byQP[wc.QPNum]++
			if wc.WRID != uint64(i) && n.name == "mem" {
				t.Errorf("completion %d has wr_id %d", i, wc.WRID)
			}
		}
		if byQP[qbs[0].QPN()] != 3 || byQP[qbs[1].QPN()] != 3 || byQP[qbs[2].QPN()] != 2 {
			t.Errorf("receives by QP: %v", byQP)
		}
		for i := range 8 { // polling made room
			must(t, srq.PostRecv(recv(b, uint64(i), 100)))
		}
	})
}

func TestV_SRQ_09_V_SRQ_11_V_SRQ_12_LimitEvent(t *testing.T) {
	onEach(t, func(t *testing.T, n *network) {
		ends := newEnds(t, n, 2, nil)
		a, b := ends[0], ends[1]
		srq := newSRQ(t, b, 8, 1)
		qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
		join(t, qa, qb, nil)
		for i := range 5 {
			must(t, srq.PostRecv(recv(b, uint64(i), 100)))
		}
		must(t, srq.Modify(&verbs.SRQAttr{SRQLimit: 4}, verbs.SRQAttrLimit))
		must(t, qa.PostSend(send(a, 1)))
		b.good(1)
		if _, err := b.ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
			t.Errorf("event with 4 left: %v", err)
		}
		if attr := get(srq.Query())(t); attr.SRQLimit != 4 {
			t.Errorf("limit %d", attr.SRQLimit)
		}
		must(t, qa.PostSend(send(a, 1)))
		if ev := nextEvent(t, b); ev.Type != verbs.EventSRQLimitReached || ev.SRQ != srq {
			t.Errorf("event %+v", ev)
		}
		if attr := get(srq.Query())(t); attr.SRQLimit != 0 { // V-SRQ-12
			t.Errorf("limit %d after the event", attr.SRQLimit)
		}
		must(t, srq.Modify(&verbs.SRQAttr{SRQLimit: 8}, verbs.SRQAttrLimit)) // V-SRQ-11: at once
		if ev := nextEvent(t, b); ev.Type != verbs.EventSRQLimitReached {
			t.Errorf("event %+v", ev)
		}
		must(t, qb.Modify(&verbs.QPAttr{QPState: verbs.QPSErr}, verbs.QPAttrState))
		if ev := nextEvent(t, b); ev.Type != verbs.EventQPLastWQEReached || ev.QP != qb { // V-AE-18
			t.Errorf("event %+v", ev)
		}
	})
}

func TestV_SRQ_20_Resize(t *testing.T) {
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	srq := newSRQ(t, b, 1, 2)
	qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
	join(t, qa, qb, nil)
	two := verbs.RecvWR{WRID: 0, SGList: []verbs.SGE{b.mr.SGE(0, 5), b.mr.SGE(10, 100)}}
	must(t, srq.PostRecv(two))
	attr := verbs.SRQAttr{MaxWR: 10, MaxSGE: 1}
	must(t, srq.Modify(&attr, verbs.SRQAttrMaxWR))
	if attr.MaxWR < 10 {
		t.Errorf("resized to %+v", attr)
	}
	for i := range 9 {
		must(t, srq.PostRecv(recv(b, uint64(i+1), 100)))
	}
	if err := srq.Modify(&verbs.SRQAttr{MaxWR: 4, MaxSGE: 1}, verbs.SRQAttrMaxWR); err == nil { // V-SRQ-08
		t.Error("an SRQ with 10 receives was resized to 4")
	}
	for i := range 10 {
		must(t, qa.PostSend(send(a, 10)))
		if wc := b.good(1)[0]; wc.WRID != uint64(i) {
			t.Fatalf("receive %d: %+v", i, wc)
		}
	}
}
