package conformance

import (
	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// The guarantees of each transport (section 2).
var transportCases = []testCase{
	{"V_TR_02_ReliableCorrectAndInOrderDespiteLoss", reliable},
	{"V_TR_02_V_TR_03_OneQPTalksToOneOther", oneToOne},
	{"V_TR_03_UCNeverRetransmits", unreliableOnce},
	{"V_TR_03_UCDropsIncompleteMessages", unreliableGap},
	{"V_TR_04_AnyDatagramToAnyQP", anyToAny},
	{"V_TR_04_TheReceiverMayDropADatagram", dropped},
	{"V_TR_05_V_GEN_15_OnlyDatagramsAreMulticast", onlyDatagramsAreMulticast},
	{"V_TR_06_V_GEN_04_LongestMessages", longest},
}

func reliable(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 13, MTU: verbs.MTU512}) // 34 ms
	t.Lose(0.05)
	const msgs, size = 20, 3000
	b.blank()
	for i := range msgs {
		t.must(qb.PostRecv(b.recv(uint64(i), i*size, size)))
	}
	for i := range msgs {
		t.must(qa.PostSend(a.send(uint64(i), i*size, size)))
	}
	for i, wc := range t.good(b.rcvQ, msgs) {
		same(t, "wr_id", wc.WRID, uint64(i))
		same(t, "byte_len", wc.ByteLen, size)
	}
	for i, wc := range t.good(a.sendCQ, msgs) {
		same(t, "wr_id", wc.WRID, uint64(i))
	}
	t.equal("the messages", b.buf[:msgs*size], a.buf[:msgs*size])
	a.blank()
	t.must(qa.PostSend(a.rdma(verbs.WRRDMARead, 0, b, 0, msgs*size)))
	t.good(a.sendCQ, 1)
	t.equal("the READ", a.buf[:msgs*size], b.buf[:msgs*size])
	if t.Counter(a.ctx, "retransmit_packets") == 0 {
		t.Error("no packet was retransmitted")
	}
}

func oneToOne(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		a, b := t.ends()
		c := t.end()
		qa, qb := connect(a, b, typ, nil)
		t.must(qb.PostRecv(b.recv(1, 0, 100)))
		qc := c.qp(typ, nil)
		t.must(qc.Connect(t.info(qb), &verbs.ConnectOptions{Timeout: 8, RetryCnt: 1}))
		t.must(qc.PostSend(c.send(7, 0, 10)))
		b.counted("bad_source", map[verbs.QPType]uint64{verbs.QPTypeRC: 2, verbs.QPTypeUC: 1}[typ])
		t.silent("the sender is not the connected peer", b.rcvQ)
		t.must(qa.PostSend(a.send(2, 0, 20)))
		same(t, "byte_len of the peer's message", t.good(b.rcvQ, 1)[0].ByteLen, 20)
	}
}

func unreliableOnce(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeUC, nil)
	t.must(p.qp.PostSend(e.send(1, 0, 2500), e.rdma(verbs.WRRDMAWrite, 2, e, 0, 10)))
	same(t, "completions without any answer", t.ids(t.poll(e.sendCQ, 2), verbs.WCSuccess), "[1 2]")
	for _, op := range []wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.WriteOnly} {
		if f := p.expect(op); f.AckReq {
			t.Errorf("%v requests an acknowledgement", f.Opcode)
		}
	}
	p.expectNothing("UC never retransmits")
}

func unreliableGap(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeUC, nil)
	t.must(p.qp.PostRecv(e.recv(1, 0, 4096), e.recv(2, 4096, 4096)))
	full := make([]byte, 1024)
	p.request(wire.Fields{Opcode: wire.SendFirst, Payload: full})
	p.psn++ // a middle packet is lost
	p.request(wire.Fields{Opcode: wire.SendLast, Payload: full[:7]})
	p.request(wire.Fields{Opcode: wire.SendOnly, Payload: full[:9]})
	wc := t.good(e.rcvQ, 1)[0]
	if wc.WRID != 1 || wc.ByteLen != 9 {
		t.Errorf("completion %+v, want the second message in the first receive", wc)
	}
	p.expectNothing("UC sends no responses")
	t.is(p.qp, verbs.QPSRTS)
}

func anyToAny(t *T) {
	var ends []*end
	var qps []*verbs.QP
	for range 3 {
		e := t.end()
		q := e.qp(verbs.QPTypeUD, nil)
		t.must(q.Connect(verbs.QPInfo{}, nil))
		ends, qps = append(ends, e), append(qps, q)
	}
	for i, from := range ends {
		for j, to := range ends { // including itself
			t.must(qps[j].PostRecv(to.recv(1, 0, 1024)))
			t.must(qps[i].PostSend(from.datagram(qps[i], qps[j], from.send(2, 100*i+j, 50))))
			t.good(from.sendCQ, 1)
			wc := t.good(to.rcvQ, 1)[0]
			if wc.SrcQP != qps[i].QPN() || wc.ByteLen != 90 || wc.QPNum != qps[j].QPN() {
				t.Errorf("from %d to %d: %+v", i, j, wc)
			}
			if i != j {
				t.equal("the datagram", to.buf[40:90], from.buf[100*i+j:100*i+j+50])
			}
			to.fill()
		}
	}
}

func dropped(t *T) {
	a, b := t.ends()
	qa, qb := a.datagrams(), b.datagrams()
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(1, 0, 10)))) // without a receive
	b.counted("recv_dropped", 1)
	t.must(qb.PostRecv(b.recv(1, 0, 49)))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(2, 0, 10)))) // one byte too long
	b.counted("recv_dropped", 2)
	t.silent("both were dropped", b.rcvQ)
	same(t, "the sends succeed", t.ids(t.poll(a.sendCQ, 2), verbs.WCSuccess), "[1 2]")
	t.is(qb, verbs.QPSRTS)
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(3, 0, 9))))
	t.good(b.rcvQ, 1)
}

func onlyDatagramsAreMulticast(t *T) {
	a, b := t.ends()
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		qa, _ := connect(a, b, typ, nil)
		t.refused("a group for "+typ.String(), qa.AttachMcast(t.group(), 0), verbs.EINVAL)
	}
	qu := a.datagrams()
	t.must(qu.AttachMcast(t.group(), 0))
	t.must(qu.DetachMcast(t.group(), 0))
	attr := get(a.ctx.QueryDevice())(t)
	if attr.MaxMcastGrp < 1 || attr.MaxMcastQPAttach < 1 {
		t.Errorf("multicast limits must be at least 1: %+v", attr)
	}
}

func longest(t *T) {
	a, b := t.ends()
	port := get(a.ctx.QueryPort(1))(t)
	same(t, "max_msg_sz", port.MaxMsgSz, 1<<31)
	const quarter = 1 << 29
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		qa, _ := connect(a, b, typ, nil)
		wr := a.send(1, 0, 0)
		wr.SGList = []verbs.SGE{a.mr.SGE(0, quarter), a.mr.SGE(0, quarter), a.mr.SGE(0, quarter), a.mr.SGE(0, quarter)}
		wr.SGList[3].Length++
		t.refused("2^31+1 bytes", qa.PostSend(wr), verbs.EINVAL)
		wr.SGList[3].Length--
		t.must(qa.PostSend(wr)) // the longest message; the memory for it is not registered
		same(t, "2^31 bytes outside the region", t.poll(a.sendCQ, 1)[0].Status, verbs.WCLocProtErr)
	}
	// A datagram is one packet.
	qa, qb := a.datagrams(), b.datagrams()
	mtu := port.ActiveMTU.Bytes()
	t.must(qb.PostRecv(b.recv(1, 0, 2*mtu)))
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(1, 0, mtu))))
	same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, uint32(mtu+40))
	t.good(a.sendCQ, 1)
	t.must(qa.PostSend(a.datagram(qa, qb, a.send(1, 0, mtu+1))))
	same(t, "a datagram above the MTU", t.poll(a.sendCQ, 1)[0].Status, verbs.WCLocLenErr)
}
