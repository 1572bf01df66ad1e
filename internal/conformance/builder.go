package conformance

import (
	"fmt"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// The work request builder with a peer (section 46). Its errors are in rangespost.go.
var builderCases = []testCase{
	{"V_WR_11_FenceOfTheBuilderWaitsForReads", builderFence},
	{"V_WR_11_SignaledAndSolicitedOfTheBuilder", builderFlags},
	{"V_WR_10_InlineIsCopiedByItsSetter", builderInline},
	{"V_WR_09_SettersOfOneAndOfLists", builderSetters},
	{"V_WR_06_BuilderAndPostSendInOrder", builderBesidePostSend},
	{"D_41_FlushAndAtomicWrite", flushAndAtomicWrite},
}

const builderOps = verbs.QPExWithSend | verbs.QPExWithSendWithImm | verbs.QPExWithRDMAWrite |
	verbs.QPExWithRDMAWriteWithImm | verbs.QPExWithRDMARead | verbs.QPExWithFlush | verbs.QPExWithAtomicWrite

// exQP creates a QP with a builder.
func (e *end) exQP(typ verbs.QPType) (*verbs.QP, *verbs.QPEx) {
	e.t.Helper()
	qp := closing(e.t, get(e.pd.CreateQP(&verbs.QPInitAttr{
		Type: typ, SendCQ: e.sendCQ, RecvCQ: e.rcvQ, Cap: verbs.QPCap{
			MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64,
		},
		SendOpsFlags: builderOps,
	}))(e.t))
	return qp, get(qp.Ex())(e.t)
}

// connectEx connects two QPs; a's QP has a builder.
func connectEx(a, b *end) (qa, qb *verbs.QP, x *verbs.QPEx) {
	a.t.Helper()
	qa, x = a.exQP(rc)
	qb = b.qp(rc, nil)
	a.t.join(qa, qb, nil)
	return qa, qb, x
}

func builderFence(t *T) {
	e := t.end()
	qp, x := e.exQP(rc)
	p := e.rawPeerFor(qp)
	t.must(qp.Connect(p.info(), longTimeout(slow)))
	x.Start()
	x.WRID, x.WRFlags = 1, verbs.SendSignaled
	x.RDMARead(e.mr.RKey(), e.mr.Addr())
	x.SetSGE(e.mr.SGE(0, 8))
	x.WRID, x.WRFlags = 2, verbs.SendFence
	x.RDMAWrite(e.mr.RKey(), e.mr.Addr())
	x.SetSGE(e.mr.SGE(0, 8))
	t.must(x.Complete())
	f := p.expect(wire.ReadRequest)
	p.expectNothing("the READ is not complete")
	p.answer(wire.ReadRespOnly, f.PSN, wire.SynAck, full[:8])
	p.expect(wire.WriteOnly)
}

func builderFlags(t *T) {
	l := t.listener()
	qa, x := l.a.exQP(rc)
	qb := l.b.qp(rc, func(i *verbs.QPInitAttr) { i.RecvCQ = l.cq })
	t.join(qa, qb, nil)
	send := func(id uint64, flags verbs.SendFlags) {
		t.Helper()
		t.must(qb.PostRecv(l.b.recv(id, 0, 10)))
		x.Start()
		x.WRID, x.WRFlags = id, flags
		x.Send()
		x.SetSGE(l.a.mr.SGE(0, 1))
		t.must(x.Complete())
		l.b.counted("rx_data_bytes", id)
	}
	t.must(l.cq.ReqNotify(true))
	send(1, 0)
	send(2, verbs.SendSignaled)
	t.asleep(l.ch, "no message was solicited")
	send(3, verbs.SendSolicited)
	t.awake(l.ch, l.cq)
	send(4, verbs.SendSignaled)
	same(t, "receives", t.ids(t.poll(l.cq, 4), verbs.WCSuccess), "[1 2 3 4]")
	same(t, "sends", t.ids(t.poll(l.a.sendCQ, 2), verbs.WCSuccess), "[2 4]")
	t.silent("the others are not signaled", l.a.sendCQ)
}

// builderInline changes the data after the setter, before the batch is complete.
func builderInline(t *T) {
	a, b := t.ends()
	_, qb, x := connectEx(a, b)
	one, first, second := []byte("one piece"), []byte("two "), []byte("pieces")
	t.must(qb.PostRecv(b.recv(1, 0, 100), b.recv(2, 200, 100)))
	x.Start()
	x.WRID, x.WRFlags = 1, verbs.SendSignaled
	x.Send()
	x.SetInlineData(one)
	blank(one)
	x.WRID = 2
	x.Send()
	x.SetInlineDataList([][]byte{first, second})
	blank(first)
	blank(second)
	t.must(x.Complete())
	t.good(a.sendCQ, 2)
	wcs := t.good(b.rcvQ, 2)
	same(t, "the first message", string(b.buf[:wcs[0].ByteLen]), "one piece")
	same(t, "the second message", string(b.buf[200:200+wcs[1].ByteLen]), "two pieces")
}

func builderSetters(t *T) {
	a, b := t.ends()
	_, qb, x := connectEx(a, b)
	for name, set := range map[string]func(){
		"set_sge":             func() { x.SetSGE(a.mr.SGE(100, 40)) },
		"set_sge_list of one": func() { x.SetSGEList([]verbs.SGE{a.mr.SGE(100, 40)}) },
		"set_sge_list of four": func() {
			x.SetSGEList([]verbs.SGE{a.mr.SGE(100, 1), a.mr.SGE(101, 20), a.mr.SGE(121, 0), a.mr.SGE(121, 19)})
		},
		"set_inline_data":      func() { x.SetInlineData(a.buf[100:140]) },
		"set_inline_data_list": func() { x.SetInlineDataList([][]byte{a.buf[100:140]}) },
	} {
		b.blank()
		t.must(qb.PostRecv(b.recv(1, 0, 100)))
		x.Start()
		x.WRID, x.WRFlags = 1, verbs.SendSignaled
		x.SendImm(0x01020304)
		set()
		t.must(x.Complete())
		t.good(a.sendCQ, 1)
		wc := t.good(b.rcvQ, 1)[0]
		if wc.ByteLen != 40 || wc.ImmData != 0x01020304 || !untouched(b.buf[40:]) {
			t.Errorf("%s: %+v", name, wc)
		}
		t.equal(name, b.buf[:40], a.buf[100:140])
	}
}

func builderBesidePostSend(t *T) {
	a, b := t.ends()
	qa, qb, x := connectEx(a, b)
	const rounds = 8
	var want []uint64
	for i := range uint64(3 * rounds) {
		t.must(qb.PostRecv(b.recv(i, 0, 10)))
		want = append(want, i)
	}
	for i := range uint64(rounds) {
		x.Start()
		for k := range uint64(2) {
			x.WRID, x.WRFlags = 3*i+k, verbs.SendSignaled
			x.Send()
			x.SetSGE(a.mr.SGE(0, int(3*i+k)%10))
		}
		t.must(x.Complete())
		t.must(qa.PostSend(a.send(3*i+2, 0, int(3*i+2)%10)))
	}
	same(t, "sends", t.ids(t.poll(a.sendCQ, len(want)), verbs.WCSuccess), fmt.Sprint(want))
	for i, wc := range t.good(b.rcvQ, len(want)) {
		if wc.WRID != uint64(i) || wc.ByteLen != uint32(i%10) {
			t.Errorf("message %d: %+v", i, wc)
		}
	}
}

// flushAndAtomicWrite writes, flushes and sets a flag, as logs in remote memory do, and then flushes in
// unsupported ways.
func flushAndAtomicWrite(t *T) {
	a, b := t.ends()
	qa, x := a.exQP(rc)
	t.join(qa, b.qp(rc, nil), &verbs.ConnectOptions{Access: b.access()})
	copy(a.buf[:100], "a record")
	done := [8]byte{'d', 'o', 'n', 'e', 1, 2, 3, 4}
	x.Start()
	x.WRID, x.WRFlags = 1, verbs.SendSignaled
	x.RDMAWrite(b.mr.RKey(), b.mr.Addr())
	x.SetSGE(a.mr.SGE(0, 100))
	x.WRID = 2
	x.Flush(b.mr.RKey(), b.mr.Addr(), 100, verbs.FlushGlobal, verbs.FlushRange)
	x.WRID = 3
	x.AtomicWrite(b.mr.RKey(), b.mr.Addr()+104, done)
	x.WRID = 4
	x.Flush(b.mr.RKey(), 0, 0, verbs.FlushGlobal, verbs.FlushMR)
	t.must(x.Complete())
	wcs := t.good(a.sendCQ, 4)
	same(t, "completions", fmt.Sprint(wcs[0].Opcode, wcs[1].Opcode, wcs[2].Opcode, wcs[3].Opcode),
		"RDMA_WRITE FLUSH ATOMIC_WRITE FLUSH")
	same(t, "the record", string(b.buf[:8]), "a record")
	same(t, "the flag", string(b.buf[104:112]), string(done[:]))
	t.must(qa.PostSend(verbs.SendWR{
		WRID: 5, Opcode: verbs.WRAtomicWrite, Flags: verbs.SendSignaled, SGList: []verbs.SGE{a.mr.SGE(0, 5), a.mr.SGE(5, 3)},
		RemoteAddr: b.mr.Addr() + 112, RKey: b.mr.RKey(),
	}))
	t.good(a.sendCQ, 1)
	same(t, "what PostSend wrote", string(b.buf[112:120]), "a record")
	x.Start()
	x.WRID = 6
	x.Flush(b.mr.RKey(), b.mr.Addr(), 100, verbs.FlushPersistent, verbs.FlushRange)
	t.must(x.Complete())
	if wc := t.poll(a.sendCQ, 1)[0]; wc.WRID != 6 || wc.Status != verbs.WCRemAccessErr {
		t.Errorf("a FLUSH to memory that is not persistent: %+v", wc)
	}
}
