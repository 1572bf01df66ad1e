package soft_test

import (
	"errors"
	"testing"
	"time"

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

// noEvent checks that there is no asynchronous event.
func noEvent(t *testing.T, e *end, why string) {
	t.Helper()
	time.Sleep(2 * time.Millisecond)
	if ev, err := e.ctx.TryGetAsyncEvent(); !errors.Is(err, verbs.EAGAIN) {
		t.Fatalf("%s: %+v, %v", why, ev, err)
	}
}

func limit(t *testing.T, srq *verbs.SRQ, n uint32) {
	t.Helper()
	must(t, srq.Modify(&verbs.SRQAttr{SRQLimit: n}, verbs.SRQAttrLimit))
}

func TestV_SRQ_10_V_SRQ_15_V_SRQ_16_LimitChangedWhileArmed(t *testing.T) { // D-05: also on RoCE
	ends := newEnds(t, &networks[0], 2, nil)
	a, b := ends[0], ends[1]
	srq := newSRQ(t, b, 8, 1)
	qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.SRQ = srq })
	join(t, qa, qb, nil)
	for i := range 8 {
		must(t, srq.PostRecv(recv(b, uint64(i), 100)))
	}
	size := get(srq.Query())(t)
	take := func() {
		t.Helper()
		must(t, qa.PostSend(send(a, 1)))
		a.good(1)
		b.good(1)
	}
	limit(t, srq, 8)
	limit(t, srq, 0)
	take()
	noEvent(t, b, "disarmed")
	limit(t, srq, 7)
	limit(t, srq, 6)
	take()
	noEvent(t, b, "6 are left, and 6 is the limit")
	if attr := get(srq.Query())(t); attr != (verbs.SRQAttr{MaxWR: size.MaxWR, MaxSGE: size.MaxSGE, SRQLimit: 6}) {
		t.Errorf("%+v", attr)
	}
	take()
	if ev := nextEvent(t, b); ev.Type != verbs.EventSRQLimitReached || ev.SRQ != srq {
		t.Errorf("%+v", ev)
	}
	take()
	noEvent(t, b, "once")
	if err := srq.Modify(&verbs.SRQAttr{SRQLimit: size.MaxWR + 1}, verbs.SRQAttrLimit); !errors.Is(err, verbs.EINVAL) {
		t.Error(err)
	}
	limit(t, srq, 4) // equal to the number of receives
	noEvent(t, b, "4 are left, and 4 is the limit")
}

func TestV_SRQ_08_FailureLeavesLimitAndSize(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	srq := newSRQ(t, e, 8, 2)
	for i := range 8 {
		must(t, srq.PostRecv(recv(e, uint64(i), 100)))
	}
	limit(t, srq, 3)
	before := get(srq.Query())(t)
	dev := get(e.ctx.QueryDevice())(t)
	both := verbs.SRQAttrMaxWR | verbs.SRQAttrLimit
	for _, c := range []struct {
		attr verbs.SRQAttr
		mask verbs.SRQAttrMask
	}{
		{verbs.SRQAttr{MaxWR: 4, MaxSGE: 2, SRQLimit: 1}, both}, // less than it holds
		{verbs.SRQAttr{MaxWR: 0, MaxSGE: 2, SRQLimit: 1}, both},
		{verbs.SRQAttr{MaxWR: uint32(dev.MaxSRQWR) + 1, MaxSGE: 2, SRQLimit: 1}, both},
		{verbs.SRQAttr{MaxWR: 16, MaxSGE: uint32(dev.MaxSRQSGE) + 1, SRQLimit: 1}, both},
		{verbs.SRQAttr{MaxWR: 16, MaxSGE: 2, SRQLimit: 17}, both},
		{verbs.SRQAttr{SRQLimit: 1}, 1 << 2},
	} {
		if err := srq.Modify(&c.attr, c.mask); !errors.Is(err, verbs.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
		if now := get(srq.Query())(t); now != before {
			t.Fatalf("%+v has changed %+v to %+v", c, before, now)
		}
	}
	most := verbs.SRQAttr{MaxWR: uint32(dev.MaxSRQWR), MaxSGE: uint32(dev.MaxSRQSGE), SRQLimit: 8}
	must(t, srq.Modify(&most, both))
	if now := get(srq.Query())(t); now != most || now.MaxWR < uint32(dev.MaxSRQWR) {
		t.Errorf("%+v, %+v", now, most)
	}
}

func TestV_SRQ_17_DestroyWaitsForItsEvents(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	srq := get(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}}))(t)
	limit(t, srq, 2) // no receive is posted
	ev := get(e.ctx.GetAsyncEvent(t.Context()))(t)
	closed := make(chan error, 1)
	go func() { closed <- srq.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("destroyed before the event was acknowledged: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	ev.Ack()
	must(t, <-closed)
}

func TestV_SRQ_18_DestroyWithReceivesAndArmed(t *testing.T) {
	e := newEnds(t, &networks[0], 1, nil)[0]
	for range 2 {
		srq := get(e.pd.CreateSRQ(&verbs.SRQInitAttr{Attr: verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}}))(t)
		for i := range 5 {
			must(t, srq.PostRecv(recv(e, uint64(i), 100)))
		}
		limit(t, srq, 3)
		must(t, srq.Close())
		if err := srq.PostRecv(recv(e, 1, 1)); !errors.Is(err, verbs.ErrClosed) {
			t.Error(err)
		}
	}
	noEvent(t, e, "destroyed before the limit was reached")
}
