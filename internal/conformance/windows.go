package conformance

import (
	"bytes"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Memory windows (section 39). The access that windows grant is in memory.go.
var windowCases = []testCase{
	{"V_MW_02_BoundUntilInvalidated", windowEnds},
	{"V_MW_06_WindowsOnUC", windowsOnUC},
	{"V_MW_07_FencedAndUnsignaledBinds", bindFlags},
	{"V_MW_06_BoundThroughXRCSend", boundThroughXRC},
	{"V_MW_02_AtomicsThroughWindows", atomicsThroughWindows},
}

// window binds a new window to a part of a region, through a QP of e.
func (e *end) window(qp *verbs.QP, typ verbs.MWType, info verbs.MWBindInfo) *verbs.MW {
	t := e.t
	t.Helper()
	mw := closing(t, get(e.pd.AllocMW(typ))(t))
	if typ == verbs.MWType1 {
		t.must(qp.BindMW(mw, &verbs.MWBind{WRID: 7, Flags: verbs.SendSignaled, Info: info}))
	} else {
		t.must(qp.PostSend(verbs.SendWR{
			WRID: 7, Opcode: verbs.WRBindMW, Flags: verbs.SendSignaled, MW: mw, RKey: verbs.IncRKey(mw.RKey()), BindInfo: &info,
		}))
	}
	wc := t.good(e.sendCQ, 1)[0]
	same(t, "opcode of the binding", wc.Opcode, verbs.WCBindMW)
	same(t, "wr_id of the binding", wc.WRID, 7)
	return mw
}

// through writes n bytes from the start of the end's memory with a key.
func (e *end) through(qp *verbs.QP, key uint32, to uint64, n int) verbs.WCStatus {
	e.t.Helper()
	wr := e.send(1, 0, n)
	wr.Opcode, wr.RemoteAddr, wr.RKey = verbs.WRRDMAWrite, to, key
	e.t.must(qp.PostSend(wr))
	return e.t.poll(e.sendCQ, 1)[0].Status
}

func windowEnds(t *T) {
	a, b := t.ends()
	for _, end := range []struct {
		name string
		typ  verbs.MWType
		do   func(qa, qb *verbs.QP, mw *verbs.MW, mr *verbs.MR)
	}{
		{"length 0", verbs.MWType1, func(_, qb *verbs.QP, mw *verbs.MW, _ *verbs.MR) {
			t.must(qb.BindMW(mw, &verbs.MWBind{Flags: verbs.SendSignaled}))
			t.good(b.sendCQ, 1)
		}},
		{"length 0 of a region", verbs.MWType1, func(_, qb *verbs.QP, mw *verbs.MW, mr *verbs.MR) {
			t.must(qb.BindMW(mw,
				&verbs.MWBind{Flags: verbs.SendSignaled,
					Info: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Access: verbs.AccessRemoteWrite}}))
			t.good(b.sendCQ, 1)
		}},
		{"LOCAL_INV", verbs.MWType2, func(_, qb *verbs.QP, mw *verbs.MW, _ *verbs.MR) {
			t.must(qb.PostSend(verbs.SendWR{Opcode: verbs.WRLocalInv, Flags: verbs.SendSignaled, InvalidateRKey: mw.RKey()}))
			t.good(b.sendCQ, 1)
		}},
		{"SEND_WITH_INV", verbs.MWType2, func(qa, qb *verbs.QP, mw *verbs.MW, _ *verbs.MR) {
			t.must(qb.PostRecv(b.recv(1, 0, 4)))
			wr := a.send(1, 0, 4)
			wr.Opcode, wr.InvalidateRKey = verbs.WRSendWithInv, mw.RKey()
			t.must(qa.PostSend(wr))
			t.good(a.sendCQ, 1)
			t.good(b.rcvQ, 1)
		}},
	} {
		mr := b.region(make([]byte, 4096), verbs.AccessLocalWrite|verbs.AccessMWBind)
		qa, qb := connect(a, b, rc, nil)
		mw := b.window(qb, end.typ, verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 100, Access: verbs.AccessRemoteWrite})
		old := mw.RKey()
		same(t, end.name+": a WRITE before", a.through(qa, old, mr.Addr(), 100), verbs.WCSuccess)
		t.refused(end.name+": closing a bound region", mr.Close(), verbs.EBUSY)
		end.do(qa, qb, mw, mr)
		same(t, end.name+": a WRITE after", a.through(qa, old, mr.Addr(), 100), verbs.WCRemAccessErr)
		qa, _ = connect(a, b, rc, nil)
		same(t, end.name+": a WRITE with the current key", a.through(qa, mw.RKey(), mr.Addr(), 100), verbs.WCRemAccessErr)
		t.must(mr.Close()) // no window is bound to it
	}
}

func windowsOnUC(t *T) {
	a, b := t.ends()
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		store := make([]byte, 4096)
		mr := b.region(store, verbs.AccessLocalWrite|verbs.AccessMWBind)
		qa, qb := connect(a, b, uc, nil)
		mw := b.window(qb, typ, verbs.MWBindInfo{MR: mr, Addr: mr.Addr() + 100, Length: 100, Access: verbs.AccessRemoteWrite})
		// UC does not report it
		same(t, "a WRITE beside the window", a.through(qa, mw.RKey(), mr.Addr()+99, 100), verbs.WCSuccess)
		same(t, "a WRITE", a.through(qa, mw.RKey(), mr.Addr()+100, 100), verbs.WCSuccess)
		if !t.Await(func() bool { return store[199] == a.buf[99] }, waitLimit) {
			t.Fatalf("%v: the WRITE did not arrive", typ)
		}
		t.equal("the data written", store[100:200], a.buf[:100])
		if !bytes.Equal(store[:100], make([]byte, 100)) || !bytes.Equal(store[200:], make([]byte, 4096-200)) {
			t.Errorf("%v: memory beside the window was written", typ)
		}
		t.is(qb, verbs.QPSRTS)
	}
}

func bindFlags(t *T) {
	e := t.end()
	mr := e.region(make([]byte, 100), verbs.AccessLocalWrite|verbs.AccessMWBind)
	info := verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 100, Access: verbs.AccessRemoteWrite}
	mw := closing(t, get(e.pd.AllocMW(verbs.MWType1))(t))
	p := e.rawPeer(rc, slow)
	t.must(p.qp.PostSend(e.rdma(verbs.WRRDMARead, 1, e, 0, 8)))
	f := p.expect(wire.ReadRequest)
	t.must(p.qp.BindMW(mw, &verbs.MWBind{WRID: 2, Flags: verbs.SendSignaled | verbs.SendFence, Info: info}))
	qa, _ := connect(e, e, rc, nil)
	same(t, "a WRITE while the fence holds", e.through(qa, mw.RKey(), mr.Addr(), 8), verbs.WCRemAccessErr)
	p.answer(wire.ReadRespOnly, f.PSN, wire.SynAck, full[:8])
	same(t, "in order", t.ids(t.poll(e.sendCQ, 2), verbs.WCSuccess), "[1 2]")
	qa, _ = connect(e, e, rc, nil)
	same(t, "a WRITE behind it", e.through(qa, mw.RKey(), mr.Addr(), 8), verbs.WCSuccess)
	t.must(p.qp.BindMW(mw, &verbs.MWBind{Info: info}))
	t.silent("the bind is unsignaled", e.sendCQ)
	same(t, "a WRITE through the new binding", e.through(qa, mw.RKey(), mr.Addr(), 8), verbs.WCSuccess)
	quc, _ := connect(e, e, uc, nil)
	t.refused("a fence on UC", quc.BindMW(mw, &verbs.MWBind{Flags: verbs.SendFence, Info: info}), verbs.EINVAL)
	t.must(mw.Close())
}

// boundThroughXRC binds a window of type 1 through an XRC_SEND QP. It can be used through every QP of the
// PD.
func boundThroughXRC(t *T) {
	e := t.end()
	domain := closing(t, get(e.ctx.OpenXRCD(nil))(t))
	receiver := closing(t, get(domain.CreateQP(&verbs.QPInitAttr{Type: verbs.QPTypeXRCRecv}))(t))
	sender := e.qp(verbs.QPTypeXRCSend, nil)
	t.join(sender, receiver, nil)
	mr := e.region(make([]byte, 100), verbs.AccessLocalWrite|verbs.AccessMWBind)
	mw := closing(t, get(e.pd.AllocMW(verbs.MWType1))(t))
	bind := verbs.MWBind{Flags: verbs.SendSignaled, Info: verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 100,
		Access: verbs.AccessRemoteWrite}}
	t.must(sender.BindMW(mw, &bind))
	same(t, "opcode", t.good(e.sendCQ, 1)[0].Opcode, verbs.WCBindMW)
	qa, _ := connect(e, e, rc, nil)
	same(t, "a WRITE", e.through(qa, mw.RKey(), mr.Addr(), 8), verbs.WCSuccess)
	t.equal("the data written", mr.Bytes()[:8], e.buf[:8])
}

func atomicsThroughWindows(t *T) {
	a, b := t.ends()
	for _, typ := range []verbs.MWType{verbs.MWType1, verbs.MWType2} {
		store := make([]byte, 4096) // a length with suitable alignment
		mr := b.region(store, verbs.AccessLocalWrite|verbs.AccessMWBind)
		qa, qb := connect(a, b, rc, nil)
		mw := b.window(qb, typ, verbs.MWBindInfo{MR: mr, Addr: mr.Addr(), Length: 16, Access: verbs.AccessRemoteAtomic})
		wr := a.rdma(verbs.WRAtomicFetchAndAdd, 1, b, 0, 8)
		wr.RemoteAddr, wr.RKey, wr.CompareAdd = mr.Addr()+8, mw.RKey(), 0x0303030303030303
		t.must(qa.PostSend(wr))
		t.good(a.sendCQ, 1)
		t.equal("the word", store[8:16], bytes.Repeat([]byte{3}, 8))
		wr.RemoteAddr += 8
		t.must(qa.PostSend(wr))
		same(t, "the word behind the window", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRemAccessErr)
		t.equal("it", store[16:24], make([]byte, 8))
	}
}
