package conformance

import (
	"fmt"
	"time"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Rules of objects on a real device. The tests of the verbs package check most of them against a driver
// that only records calls.
var ruleCases = []testCase{
	{"V_GEN_21_V_APP_03_BothEndsMustBeUp", bothEndsUp},
	{"V_GEN_07_X_PD_01_DomainsDoNotMix", mixedDomains},
	{"V_KC_06_V_MR_04_OneBufferManyRegions", manyRegions},
	{"V_APP_05_V_MR_03_AnyMemoryMayBeRegistered", anyMemory},
	{"V_KC_09_V_AH_02_V_QPM_08_RoCENeedsAGRH", needsGRH},
	{"V_PKEY_02_V_PKEY_03_V_PKEY_04_V_PKEY_05_Partitions", partitions},
	{"V_CTX_02_V_AE_01_V_AE_11_EventsWaitToBeRead", eventsWait},
	{"V_AE_06_V_AE_07_V_QPD_05_V_SRQ_17_V_CQ_20_CloseWaitsForAcknowledgements", closeWaits},
	{"V_EV_01_V_EV_02_V_EV_05_V_CQ_21_CompletionEventsAreAcknowledged", compEventsAcked},
	{"V_CQ_08_EveryVectorWorks", everyVector},
	{"V_SRQ_01_V_SRQ_02_V_SRQ_03_V_SRQ_16_NewSRQs", newSRQs},
	{"V_QP_04_V_QP_15_TheManualsQPs", manualQPs},
	{"V_QP_08_D_20_NoReliableDatagrams", noRD},
	{"V_QPM_01_D_31_D_32_TransitionsInOrder", transitionsInOrder},
	{"V_RECV_07_V_SEND_16_PostingByState", postingByState},
	{"V_PD_03_D_30_NoDeferredDeallocation", noDeferral},
}

func bothEndsUp(t *T) {
	a, b := t.ends()
	qa, qb := a.qp(rc, nil), b.qp(rc, nil)
	ib := t.info(qb)
	t.must(qa.Connect(ib, longTimeout(&shortTimeout)))
	t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)))
	same(t, "the peer is in RESET", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRetryExcErr)
	t.to(qa, verbs.QPSReset)
	ia := t.info(qa) // has a new PSN
	t.must(qa.Connect(ib, longTimeout(nil)))
	t.must(qb.Connect(ia, longTimeout(nil)))
	t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 2, b, 0, 8)))
	t.good(a.sendCQ, 1)
}

func mixedDomains(t *T) {
	a, b := t.ends()
	foreign := func(e *end) *verbs.MR {
		pd := closing(t, get(e.ctx.AllocPD())(t))
		return closing(t, get(pd.RegMR(make([]byte, 4096), allAccess))(t))
	}
	qa, _ := connect(a, b, rc, nil)
	wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
	wr.SGList[0] = foreign(a).SGE(0, 8)
	t.must(qa.PostSend(wr))
	same(t, "a local region of another PD", t.poll(a.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
	qa, _ = connect(a, b, rc, nil)
	wr = a.rdma(verbs.WRRDMARead, 1, b, 0, 8)
	far := foreign(b)
	wr.RemoteAddr, wr.RKey = far.Addr(), far.RKey()
	t.must(qa.PostSend(wr))
	same(t, "a remote region of another PD", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemAccessErr)
	ud1 := a.datagrams()
	attr := get(ud1.AHAttrTo(t.info(b.datagrams()), nil))(t)
	other := closing(t, get(a.ctx.AllocPD())(t))
	dg := a.send(1, 0, 1)
	dg.AH, dg.RemoteQPN = closing(t, get(other.CreateAH(&attr))(t)), 1
	t.refused("an AH of another PD", ud1.PostSend(dg), verbs.EINVAL)
}

func manyRegions(t *T) {
	a, b := t.ends()
	store := make([]byte, 4096)
	readable, writable := b.region(store, verbs.AccessRemoteRead), b.region(store[1000:3000], allAccess)
	if readable.RKey() == writable.RKey() || readable.LKey() == writable.LKey() {
		t.Error("two regions have a key in common")
	}
	qa, _ := connect(a, b, rc, nil)
	wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 100)
	wr.RemoteAddr, wr.RKey = writable.Addr()+10, writable.RKey()
	t.must(qa.PostSend(wr))
	t.good(a.sendCQ, 1)
	read := a.rdma(verbs.WRRDMARead, 2, b, 5000, 100)
	read.RemoteAddr, read.RKey = readable.Addr()+1010, readable.RKey()
	t.must(qa.PostSend(read))
	t.good(a.sendCQ, 1)
	t.equal("data written through one and read through the other", a.buf[5000:5100], a.buf[:100])
	wr.RemoteAddr, wr.RKey = readable.Addr()+1010, readable.RKey()
	t.must(qa.PostSend(wr))
	same(t, "writing through the readable one", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemAccessErr)
}

var global [4096]byte

func anyMemory(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, rc, nil)
	mapped := get(verbs.AllocBuffer(4096))(t)
	t.Cleanup(func() { t.must(verbs.FreeBuffer(mapped)) })
	for name, buf := range map[string][]byte{
		"global": global[:], "heap": make([]byte, 4096), "mmap": mapped, "odd": make([]byte, 4096)[13:1000],
		"one byte": make([]byte, 1),
	} {
		n := min(len(buf), 500)
		mr := b.region(buf, allAccess)
		wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, n)
		wr.RemoteAddr, wr.RKey = mr.Addr(), mr.RKey()
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		t.equal(name, buf[:n], a.buf[:n])
	}
}

func needsGRH(t *T) {
	a := t.end()
	port := get(a.ctx.QueryPort(1))(t)
	same(t, "link layer", port.LinkLayer, verbs.LinkLayerEthernet)
	_, err := a.pd.CreateAH(&verbs.AHAttr{PortNum: 1, DLID: 1})
	t.refused("an AH without GRH", err, verbs.EINVAL)
	for _, typ := range []verbs.QPType{rc, uc} {
		qp := a.qp(typ, nil)
		toInit(qp, allAccess)
		mask := map[verbs.QPType]verbs.QPAttrMask{rc: rtrMask, uc: ucRTRMask}[typ]
		attr := verbs.QPAttr{QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: 1,
			AHAttr: verbs.AHAttr{PortNum: 1, DLID: 1}}
		t.refused("RTR without GRH", qp.Modify(&attr, mask), verbs.EINVAL)
		t.is(qp, verbs.QPSInit)
	}
}

func partitions(t *T) {
	e := t.end()
	port := get(e.ctx.QueryPort(1))(t)
	if port.PKeyTblLen < 1 {
		t.Fatal("the port has no P_Key")
	}
	ours := get(e.ctx.QueryPKey(1, 0))(t)
	same(t, "the index of the P_Key", get(e.ctx.PKeyIndex(1, ours))(t), 0)
	p := e.rawPeer(uc, nil)
	for i, c := range []struct {
		key   uint16
		match bool
	}{{ours, true}, {ours ^ 0x8000, ours&0x8000 != 0}, {ours ^ 1, false}, {ours ^ 0x8001, false}} {
		t.must(p.qp.PostRecv(e.recv(uint64(i), 0, 10)))
		f := p.packet(wire.Fields{Opcode: wire.SendOnly})
		f.PKey = c.key
		before := t.Counter(e.ctx, "bad_pkey")
		p.put(f.Build())
		if c.match {
			p.psn++
			t.good(e.rcvQ, 1)
		} else {
			e.counted("bad_pkey", before+1)
		}
	}
	t.must(p.qp.PostSend(e.send(1, 0, 1)))
	same(t, "the P_Key that the QP sends", p.expect(wire.SendOnly).PKey, ours)
	bad := uint64(2) // the packets with a bad P_Key above
	if ours&0x8000 == 0 {
		bad = 3
	}
	same(t, "bad_pkey", t.Counter(e.ctx, "bad_pkey"), bad)
	if get(e.ctx.QueryDevice())(t).DeviceCapFlags&verbs.DeviceBadPKeyCntr == 0 {
		return
	}
	for range 100 { // the port's counter is updated in real time and may lag
		if port = get(e.ctx.QueryPort(1))(t); uint64(port.BadPKeyCntr) == bad {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	same(t, "bad_pkey_cntr", uint64(port.BadPKeyCntr), bad)
	same(t, "qkey_viol_cntr", port.QKeyViolCntr, 0)
}

func eventsWait(t *T) {
	a, b := t.ends()
	srqs := []*verbs.SRQ{b.srq(4), b.srq(4), b.srq(4)}
	for _, s := range srqs {
		t.arm(s, 1) // immediately: no receive is posted
	}
	qa, qb := connect(a, b, rc, nil)
	receive(a, b, qa, qb, 0, 5) // events need not be read
	for _, s := range srqs {
		b.limitReached(s)
	}
	b.noEvent("all three were read")
}

// waits checks that Close does not return before ack.
func (t *T) waits(what string, c interface{ Close() error }, ack func()) {
	t.Helper()
	done := make(chan error)
	go func() { done <- c.Close() }()
	time.Sleep(moment) // of real time, for the goroutine
	t.Pause(moment)
	select {
	case err := <-done:
		t.Errorf("%s was closed (%v) before its event was acknowledged", what, err)
	default:
		ack()
		t.must(<-done)
	}
}

func closeWaits(t *T) {
	a, b := t.ends()
	next := func(want verbs.EventType) verbs.AsyncEvent {
		t.Helper()
		var ev verbs.AsyncEvent
		if !t.Await(func() (ok bool) { var err error; ev, err = b.ctx.TryGetAsyncEvent(); return err == nil }, waitLimit) ||
			ev.Type != want {
			t.Errorf("event %v, want %v", ev.Type, want)
		}
		return ev
	}
	srq := b.srq(4)
	t.arm(srq, 1)
	ev := next(verbs.EventSRQLimitReached)
	t.waits("the SRQ", srq, ev.Ack)

	qa, qb := connect(a, b, rc, nil)
	wr := a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)
	wr.RKey ^= 0x55
	t.must(qa.PostSend(wr))
	ev = next(verbs.EventQPAccessErr)
	t.waits("the QP", qb, ev.Ack)

	small := b.cq(1, nil)
	qa, qb = onCQ(a, b, small)
	for i := range small.Cap() + 1 {
		t.must(qb.PostRecv(b.recv(uint64(i), 0, 10)))
		t.must(qa.PostSend(a.send(1, 0, 1)))
	}
	first, second := next(verbs.EventCQErr), next(verbs.EventQPFatal)
	second.Ack()
	t.must(qb.Close())
	t.waits("the CQ", small, first.Ack)
}

func compEventsAcked(t *T) {
	l := t.listener()
	take := func() {
		t.Helper()
		t.must(l.cq.ReqNotify(false))
		l.receive(1)
		var got *verbs.CQ
		if !t.Await(func() bool { got, _ = l.ch.TryGetEvent(); return got != nil }, waitLimit) || got != l.cq {
			t.Fatalf("the event is of %v", got)
		}
	}
	take()
	take()
	take()
	t.must(l.qb.Close())
	l.cq.AckEvents(1)
	t.waits("the CQ", l.cq, func() { l.cq.AckEvents(2) })
}

func everyVector(t *T) {
	a, b := t.ends()
	for v := range b.ctx.NumCompVectors() {
		ch := closing(t, get(b.ctx.CreateCompChannel())(t))
		cq := b.cq(8, &verbs.CQOptions{Channel: ch, CompVector: v, Context: v})
		same(t, "the CQ's context", cq.CQContext(), any(v))
		qa, qb := onCQ(a, b, cq)
		t.must(cq.ReqNotify(false))
		receive(a, b, qa, qb, 0, 1)
		t.awake(ch, cq)
		t.good(cq, 1)
	}
	_, err := b.ctx.CreateCQ(8, &verbs.CQOptions{CompVector: b.ctx.NumCompVectors()})
	t.refused("a vector beyond the last", err, verbs.EINVAL)
}

func newSRQs(t *T) {
	e := t.end()
	init := verbs.SRQInitAttr{Context: "mine", Attr: verbs.SRQAttr{MaxWR: 5, MaxSGE: 2, SRQLimit: 4}}
	srq := closing(t, get(e.pd.CreateSRQ(&init))(t))
	same(t, "srq_context", srq.SRQContext(), any("mine"))
	got := get(srq.Query())(t)
	if got.MaxWR < 5 || got.MaxSGE < 2 || got.SRQLimit != 0 || got.MaxWR != init.Attr.MaxWR ||
		got.MaxSGE != init.Attr.MaxSGE {
		t.Errorf("attributes %+v, returned %+v", got, init.Attr)
	}
	e.noEvent("the limit is ignored at creation")
}

func manualQPs(t *T) {
	e := t.end()
	srq := e.srq(8)
	for name, change := range map[string]func(*verbs.QPInitAttr){
		"the same CQ twice": func(i *verbs.QPInitAttr) { i.RecvCQ = i.SendCQ },
		"two CQs":           func(*verbs.QPInitAttr) {},
		"with an SRQ":       func(i *verbs.QPInitAttr) { i.SRQ = srq; i.Cap.MaxRecvWR, i.Cap.MaxRecvSGE = 0, 0 },
		"inline 512":        func(i *verbs.QPInitAttr) { i.Cap.MaxInlineData = 512 },
	} {
		qp := e.qp(rc, func(i *verbs.QPInitAttr) { i.Context = name; change(i) })
		same(t, "qp_context", qp.QPContext(), any(name))
		t.is(qp, verbs.QPSReset)
	}
}

func noRD(t *T) {
	e := t.end()
	for _, typ := range []verbs.QPType{5, 6, 7} {
		_, err := e.pd.CreateQP(&verbs.QPInitAttr{Type: typ, SendCQ: e.sendCQ, RecvCQ: e.rcvQ})
		t.refused(fmt.Sprintf("a QP of type %d", typ), err, verbs.EINVAL)
	}
}

func transitionsInOrder(t *T) {
	e := t.end()
	qp := e.qp(rc, nil)
	refused := func(states ...verbs.QPState) {
		t.Helper()
		at := qp.State()
		for _, s := range states {
			t.refused(fmt.Sprintf("%v->%v", at, s), qp.Modify(&verbs.QPAttr{QPState: s, PortNum: 1}, verbs.QPAttrState),
				verbs.EINVAL)
			t.is(qp, at)
		}
	}
	refused(verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE)
	t.to(qp, verbs.QPSErr) // D-31
	t.to(qp, verbs.QPSReset)
	toInit(qp, allAccess)
	refused(verbs.QPSRTS, verbs.QPSSQD, verbs.QPSSQE)
	p := e.rawPeerFor(qp)
	toRTR(qp, p.info(), 12) // D-32: no receive is posted
	refused(verbs.QPSInit, verbs.QPSSQD, verbs.QPSSQE)
	mustModify(qp, &verbs.QPAttr{QPState: verbs.QPSRTS}, rtsMask)
	refused(verbs.QPSInit, verbs.QPSRTR, verbs.QPSSQE)
	t.to(qp, verbs.QPSErr)
	refused(verbs.QPSInit, verbs.QPSRTR, verbs.QPSRTS, verbs.QPSSQD)
}

func postingByState(t *T) {
	e := t.end()
	qp := e.qp(rc, nil)
	p := e.rawPeerFor(qp)
	check := func(send, recv bool) {
		t.Helper()
		for what, c := range map[string]struct {
			err error
			ok  bool
		}{"a send": {qp.PostSend(e.rdma(verbs.WRRDMAWrite, 1, e, 0, 1)), send},
			"a receive": {qp.PostRecv(e.recv(2, 0, 1)), recv}} {
			if c.ok {
				t.must(c.err)
			} else {
				t.refused(fmt.Sprintf("%s in %v", what, qp.State()), c.err, verbs.EINVAL)
			}
		}
	}
	check(false, false)
	toInit(qp, allAccess)
	check(false, true)
	toRTR(qp, p.info(), 12)
	check(false, true)
	mustModify(qp, &verbs.QPAttr{QPState: verbs.QPSRTS, Timeout: 22}, rtsMask)
	check(true, true)
	p.expect(wire.WriteOnly)
	t.toSQD(qp, false)
	check(true, true)
	p.expectNothing("it is in SQD")
	t.to(qp, verbs.QPSErr)
	check(true, true)
	same(t, "sends flushed", t.ids(t.poll(e.sendCQ, 3), verbs.WCWRFlushErr), "[1 1 1]")
	same(t, "receives flushed", t.ids(t.poll(e.rcvQ, 5), verbs.WCWRFlushErr), "[2 2 2 2 2]")
}

func noDeferral(t *T) {
	e := t.end()
	t.refused("a PD with a region", e.pd.Close(), verbs.EBUSY)
	_ = e.qp(rc, nil) // the PD is unchanged
	other := get(e.ctx.AllocPD())(t)
	t.must(other.Close())
	t.refused("a closed PD", other.Close(), verbs.EINVAL)
}
