package conformance

import (
	"syscall"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// Asynchronous events (section 19). SQ_DRAINED is in drain.go, the events of SRQs are in srqs.go. Events of
// ports and paths need interfaces that go down; provider/soft tests them.
var eventCases = []testCase{
	{"V_AE_12_V_AE_19_V_CQ_07_D_45_V_POLL_04_Overrun", overrun},
	{"V_AE_12_V_AE_19_QPsOnAnOverrunCQFail", qpsOnOverrunCQ},
	{"V_AE_13_BrokenProtocol", brokenProtocol},
	{"V_AE_14_MissingRights", missingRights},
	{"V_AE_15_CommEstInRTR", commEst},
	{"V_AE_15_NoCommEstInRTS", noCommEst},
}

func overrun(t *T) {
	a, b := t.ends()
	ch := closing(t, get(b.ctx.CreateCompChannel())(t))
	small := b.cq(4, &verbs.CQOptions{Channel: ch})
	onSmall := func(init *verbs.QPInitAttr) { init.RecvCQ = small }
	qa, qb := a.qp(verbs.QPTypeRC, nil), b.qp(verbs.QPTypeRC, onSmall)
	t.join(qa, qb, slow)
	other := b.qp(verbs.QPTypeUC, onSmall) // uses the CQ but completes nothing
	t.must(other.Connect(verbs.QPInfo{Type: verbs.QPTypeUC, QPN: 99, GID: t.info(qa).GID}, nil))
	room := small.Cap()
	for i := range room + 1 {
		t.must(qb.PostRecv(b.recv(uint64(i), 0, 10)))
		t.must(qa.PostSend(a.send(uint64(i), 0, 10)))
	}
	fatal := map[*verbs.QP]bool{}
	for range 3 {
		switch ev := b.event(); {
		case ev.Type == verbs.EventCQErr && ev.CQ == small:
		case ev.Type == verbs.EventQPFatal && !fatal[ev.QP]:
			fatal[ev.QP] = true
		default:
			t.Errorf("event %v", ev.Type)
		}
	}
	if !fatal[qb] || !fatal[other] {
		t.Errorf("QP_FATAL was raised for %d of two QPs", len(fatal))
	}
	b.noEvent("each QP had one")
	t.is(qb, verbs.QPSErr)
	t.is(other, verbs.QPSErr)
	// D-45: completions from before the overrun can be polled, then polling fails.
	wcs := make([]verbs.WC, room+1)
	same(t, "completions before the overrun", get(small.Poll(wcs))(t), room)
	if _, err := small.Poll(wcs); err == nil {
		t.Error("polling an overrun CQ did not fail")
	}
	if err := small.ReqNotify(false); err == nil {
		t.Error("arming an overrun CQ did not fail")
	}
}

// qpsOnOverrunCQ overruns a CQ for sends. A QP that has left RESET fails, a QP in RESET cannot leave it.
func qpsOnOverrunCQ(t *T) {
	a, b := t.ends()
	small := a.cq(1, nil)
	onSmall := func(init *verbs.QPInitAttr) { init.SendCQ = small }
	qa, inInit, inReset := a.qp(rc, onSmall), a.qp(rc, onSmall), a.qp(uc, onSmall)
	toInit(inInit, allAccess)
	t.join(qa, b.qp(rc, nil), nil)
	for range small.Cap() + 1 {
		t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 1, b, 0, 8)))
	}
	seen := map[verbs.EventType]int{}
	for range 3 {
		ev := a.event()
		seen[ev.Type]++
		if ev.QP == inReset {
			t.Errorf("%v of a QP in RESET", ev.Type)
		}
	}
	if seen[verbs.EventCQErr] != 1 || seen[verbs.EventQPFatal] != 2 {
		t.Errorf("events %v", seen)
	}
	a.noEvent("each active QP had its own")
	t.is(inInit, verbs.QPSErr)
	t.is(inReset, verbs.QPSReset)
	t.to(qa, verbs.QPSReset)
	for _, qp := range []*verbs.QP{qa, inReset} {
		t.refused("leaving RESET", qp.Connect(verbs.QPInfo{Type: qp.Type(), QPN: 99, GID: t.info(qp).GID}, nil), syscall.EIO)
		t.is(qp, verbs.QPSReset)
		t.to(qp, verbs.QPSErr)
		t.to(qp, verbs.QPSReset)
	}
	_, err := a.pd.CreateQP(&verbs.QPInitAttr{Type: rc, SendCQ: small, RecvCQ: a.rcvQ,
		Cap: verbs.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	t.refused("one more QP", err, syscall.EIO)
}

// broken makes a raw peer send requests. The last one must end the QP with an event and a NAK.
func broken(t *T, name string, event verbs.EventType, nak uint8, change func(e *end, p *rawPeer), fs ...wire.Fields) {
	t.Helper()
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	if change != nil {
		change(e, p)
	}
	t.must(p.qp.PostRecv(e.recv(1, 0, 8192)))
	e.blank()
	for i := range fs {
		if fs[i].RKey == 0 {
			fs[i].RKey = e.mr.RKey()
		}
		fs[i].Addr += e.mr.Addr()
		p.request(fs[i])
	}
	if ev := e.event(); ev.Type != event || ev.QP != p.qp {
		t.Errorf("%s: event %v", name, ev.Type)
	}
	if got := p.expect(wire.Ack); got.Syndrome != nak || got.PSN != (p.psn-1)&0xffffff {
		t.Errorf("%s: responded with syndrome %#x of PSN %#x, want %#x of %#x", name, got.Syndrome, got.PSN, nak,
			(p.psn-1)&0xffffff)
	}
	t.is(p.qp, verbs.QPSErr)
	if wc := t.poll(e.rcvQ, 1)[0]; wc.WRID != 1 || wc.Status == verbs.WCSuccess {
		t.Errorf("%s: completion %+v", name, wc)
	}
	e.noEvent("the event was raised already")
}

var full = make([]byte, 1024)

func brokenProtocol(t *T) {
	for _, c := range []struct {
		name string
		fs   []wire.Fields
	}{
		{"a message without its beginning", []wire.Fields{{Opcode: wire.SendMiddle, Payload: full}}},
		{"a message in a message", []wire.Fields{{Opcode: wire.SendFirst, Payload: full}, {Opcode: wire.SendOnly}}},
		{"a WRITE ends as a SEND", []wire.Fields{{Opcode: wire.WriteFirst, DMALen: 2048, Payload: full},
			{Opcode: wire.SendLast, Payload: full}}},
		{"FLUSH", []wire.Fields{{Opcode: wire.Flush, DMALen: 8}}},
		{"a first packet shorter than the MTU", []wire.Fields{{Opcode: wire.SendFirst, Payload: full[:1000]}}},
		{"a packet longer than the MTU", []wire.Fields{{Opcode: wire.SendOnly, Payload: make([]byte, 1028)}}},
	} {
		broken(t, c.name, verbs.EventQPReqErr, wire.SynInvReq, nil, c.fs...)
	}
}

func missingRights(t *T) {
	none := func(e *end, p *rawPeer) {
		t.to(p.qp, verbs.QPSReset)
		toInit(p.qp, allAccess)
		mustModify(p.qp, &verbs.QPAttr{QPState: verbs.QPSRTR, PathMTU: verbs.MTU1024, DestQPNum: rawPeerQPN,
			RQPSN:  rawPeerPSN,
			AHAttr: pathTo(p.qp, p.info().GID)}, rtrMask) // no responder resources
		mustModify(p.qp, &verbs.QPAttr{QPState: verbs.QPSRTS}, rtsMask)
	}
	for _, c := range []struct {
		name   string
		nak    uint8
		change func(e *end, p *rawPeer)
		f      wire.Fields
	}{
		{"a misaligned atomic", wire.SynInvReq, nil, wire.Fields{Opcode: wire.FetchAdd, Addr: 4}},
		{"a misaligned ATOMIC WRITE", wire.SynInvReq, nil, wire.Fields{Opcode: wire.AtomicWrite, Addr: 4, DMALen: 8,
			Payload: full[:8]}},
		{"an ATOMIC WRITE of 16 bytes", wire.SynInvReq, nil,
			wire.Fields{Opcode: wire.AtomicWrite, DMALen: 16, Payload: full[:8]}},
		{"more READs than resources", wire.SynInvReq, none, wire.Fields{Opcode: wire.ReadRequest, DMALen: 8}},
		{"a wrong R_Key", wire.SynAccess, nil, wire.Fields{Opcode: wire.WriteOnly, RKey: 0x7777, DMALen: 8,
			Payload: full[:8]}},
		{"beyond the region", wire.SynAccess, nil, wire.Fields{Opcode: wire.ReadRequest, Addr: memory - 7, DMALen: 8}},
		{"less data than the DMA length", wire.SynInvReq, nil,
			wire.Fields{Opcode: wire.WriteOnly, DMALen: 16, Payload: full[:8]}},
		{"more data than the DMA length", wire.SynInvReq, nil,
			wire.Fields{Opcode: wire.WriteOnly, DMALen: 4, Payload: full[:8]}},
		{"a WRITE of more than 2^31 bytes", wire.SynInvReq, nil, wire.Fields{Opcode: wire.WriteFirst, DMALen: 1<<31 + 1,
			Payload: full}},
		{"a READ of more than 2^31 bytes", wire.SynInvReq, nil, wire.Fields{Opcode: wire.ReadRequest, DMALen: 1<<31 + 1}},
	} {
		broken(t, c.name, verbs.EventQPAccessErr, c.nak, c.change, c.f)
	}
}

func commEst(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		e := t.end()
		p := e.rawPeerFor(e.qp(typ, nil))
		toInit(p.qp, allAccess)
		t.must(p.qp.PostRecv(e.recv(1, 0, 100), e.recv(2, 0, 100)))
		toRTR(p.qp, p.info(), 12)
		// A packet that is not handled correctly raises no event.
		wrong := p.packet(wire.Fields{Opcode: wire.SendOnly})
		wrong.PKey = 0x1234
		p.put(wrong.Build())
		e.counted("bad_pkey", 1)
		e.noEvent("the packet was dropped")
		p.request(wire.Fields{Opcode: wire.SendOnly})
		if ev := e.event(); ev.Type != verbs.EventCommEst || ev.QP != p.qp {
			t.Errorf("%v: event %+v", typ, ev)
		}
		p.request(wire.Fields{Opcode: wire.SendOnly})
		t.good(e.rcvQ, 2)
		e.noEvent("it is raised once")
	}
}

func noCommEst(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.must(p.qp.PostRecv(e.recv(1, 0, 100)))
	p.request(wire.Fields{Opcode: wire.SendOnly})
	t.good(e.rcvQ, 1)
	e.noEvent("the QP is in RTS")
}
