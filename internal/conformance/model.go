package conformance

import (
	"encoding/binary"

	"github.com/verbena-rdma/verbena/internal/wire"
	"github.com/verbena-rdma/verbena/verbs"
)

// The operations and the objects involved (sections 1 and 3).
var modelCases = []testCase{
	{"V_GEN_06_V_KC_04_OutstandingUntilItsCompletionIsPolled", outstandingUntilPolled},
	{"V_GEN_08_V_RECV_03_SendsAndWritesWithImmediateConsumeReceives", consumesReceives},
	{"V_GEN_09_V_KC_01_V_SEND_17_GatherAndScatter", gatherAndScatter},
	{"V_GEN_10_CQIsAFIFO", fifo},
	{"V_GEN_11_V_GEN_26_V_SEND_05_AtomicsActOn64Bits", atomics64},
	{"V_GEN_12_RNRMeansConnectedButNoReceive", rnrOnly},
	{"V_GEN_14_V_GEN_24_OnlyTheRequesterSeesARead", silentRead},
	{"V_GEN_16_MessagesKeepTheirBoundaries", boundaries},
	{"V_GEN_16_IncompleteMessageIsNotReported", halfAMessage},
	{"V_GEN_22_TheReceiverChoosesWhereDataLands", receiverChooses},
	{"V_GEN_23_ImmediateIsNotInTheBuffer", immediateOutOfBand},
	{"V_GEN_25_WriteIsSilentUnlessWithImmediate", silentWrite},
	{"V_KC_02_V_GEN_12_NoReceiveIsAnsweredWithRNR", rnrOnTheWire},
	{"V_KC_08_V_AH_01_AddressesByQPAndByRequest", addressing},
	{"V_KC_11_V_AE_10_AffiliatedEventsGoToTheirContextOnly", affiliated},
	{"V_KC_12_D_46_AfterAnErrorAllFail", allFailAfterAnError},
	{"V_KC_13_V_SEND_03_V_RECV_04_BuffersAreTheProgramsAfterTheCompletion", buffersReusable},
}

func outstandingUntilPolled(t *T) {
	a, b := t.ends()
	qa := a.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.Cap.MaxSendWR = 4 })
	_, sender, err := qa.Query(0)
	t.must(err)
	sends := int(sender.Cap.MaxSendWR) // the device may round it up
	qb := b.qp(verbs.QPTypeRC, func(init *verbs.QPInitAttr) { init.Cap.MaxRecvWR = sender.Cap.MaxSendWR })
	_, receiver, err := qb.Query(0)
	t.must(err)
	t.join(qa, qb, nil)
	for i := range receiver.Cap.MaxRecvWR {
		t.must(qb.PostRecv(b.recv(uint64(i), 0, 10)))
	}
	for i := range sends {
		t.must(qa.PostSend(a.send(uint64(i), 0, 10)))
	}
	b.counted("rx_data_bytes", uint64(10*sends)) // all have arrived
	t.Pause(moment)
	t.refused("a send into a full queue", qa.PostSend(a.send(9, 0, 1)), verbs.ENOMEM)
	t.refused("a receive into a full queue", qb.PostRecv(b.recv(9, 0, 1)), verbs.ENOMEM)
	t.good(a.sendCQ, 1)
	t.good(b.rcvQ, 1)
	t.must(qa.PostSend(a.send(9, 0, 1)))
	t.must(qb.PostRecv(b.recv(9, 0, 1)))
	t.refused("a second send", qa.PostSend(a.send(9, 0, 1)), verbs.ENOMEM)
	t.refused("a second receive", qb.PostRecv(b.recv(9, 0, 1)), verbs.ENOMEM)
	t.good(a.sendCQ, sends) // polled completions free the slots
	t.good(b.rcvQ, sends)
	t.silent("each was polled once", a.sendCQ, b.rcvQ)
}

func consumesReceives(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qb.PostRecv(b.recv(1, 0, 100), b.recv(2, 0, 100), b.recv(3, 0, 100)))
	for _, op := range []verbs.WROpcode{verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd,
		verbs.WRAtomicCmpAndSwp} {
		t.must(qa.PostSend(a.rdma(op, 0, b, 1024, 8)))
	}
	t.good(a.sendCQ, 4)
	t.silent("one-sided operations consume no receive", b.rcvQ)
	imm := a.send(0, 0, 7)
	imm.Opcode = verbs.WRSendWithImm
	t.must(qa.PostSend(a.send(0, 0, 5), a.rdma(verbs.WRRDMAWriteWithImm, 0, b, 2048, 300), imm))
	wcs := t.good(b.rcvQ, 3)
	same(t, "receives", t.ids(wcs, verbs.WCSuccess), "[1 2 3]")
	same(t, "the bytes of SEND, WRITE_WITH_IMM and SEND_WITH_IMM",
		[3]uint32{wcs[0].ByteLen, wcs[1].ByteLen, wcs[2].ByteLen}, [3]uint32{5, 300, 7})
}

func gatherAndScatter(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	b.blank()
	t.must(qb.PostRecv(verbs.RecvWR{SGList: []verbs.SGE{b.mr.SGE(5000, 1), b.mr.SGE(0, 2000), b.mr.SGE(7000, 0),
		b.mr.SGE(9000, 3000)}}))
	t.must(qa.PostSend(verbs.SendWR{Opcode: verbs.WRSend, SGList: []verbs.SGE{
		a.mr.SGE(100, 1500), a.mr.SGE(50, 0), a.mr.SGE(30000, 1), a.mr.SGE(20000, 2000),
	}}))
	same(t, "byte_len", t.good(b.rcvQ, 1)[0].ByteLen, 3501)
	sent := append(append(append([]byte{}, a.buf[100:1600]...), a.buf[30000]), a.buf[20000:22000]...)
	got := append(append(append([]byte{}, b.buf[5000]), b.buf[:2000]...), b.buf[9000:10500]...)
	t.equal("the stream", got, sent)
	for _, free := range [][2]int{{2000, 5000}, {5001, 9000}, {10500, memory}} {
		if !untouched(b.buf[free[0]:free[1]]) {
			t.Errorf("memory between %d and %d was written", free[0], free[1])
		}
	}
}

func fifo(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	want := []verbs.WCOpcode{verbs.WCSend, verbs.WCRDMAWrite, verbs.WCRDMARead, verbs.WCFetchAdd, verbs.WCSend}
	for i, op := range []verbs.WROpcode{verbs.WRSend, verbs.WRRDMAWrite, verbs.WRRDMARead, verbs.WRAtomicFetchAndAdd,
		verbs.WRSend} {
		t.must(qb.PostRecv(b.recv(uint64(10+i), 4096, 4096)))
		t.must(qa.PostSend(a.rdma(op, uint64(i), b, 8*i, 8)))
	}
	for i, wc := range t.good(a.sendCQ, len(want)) {
		same(t, "wr_id", wc.WRID, uint64(i))
		same(t, "opcode", wc.Opcode, want[i])
		same(t, "qp_num", wc.QPNum, qa.QPN())
	}
	for i, wc := range t.good(b.rcvQ, 2) {
		same(t, "wr_id", wc.WRID, uint64(10+i))
		same(t, "byte_len", wc.ByteLen, 8)
	}
}

func atomics64(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	word := func(e *end) uint64 { return binary.NativeEndian.Uint64(e.buf) }
	set := func(v uint64) { binary.NativeEndian.PutUint64(b.buf, v) }
	for _, c := range []struct {
		op                        verbs.WROpcode
		before, arg, swap, result uint64
	}{
		{verbs.WRAtomicFetchAndAdd, 40, 2, 99, 42},
		{verbs.WRAtomicFetchAndAdd, 0xffffffff, 1, 0, 1 << 32}, // carries
		{verbs.WRAtomicFetchAndAdd, ^uint64(0), 3, 0, 2},       // wraps around
		{verbs.WRAtomicCmpAndSwp, 0x0102030405060708, 0x0102030405060708, 0xfffefdfcfbfaf9f8, 0xfffefdfcfbfaf9f8},
		{verbs.WRAtomicCmpAndSwp, 0x0102030405060708, 0x0202030405060708, 7, 0x0102030405060708}, // the upper half matters
		{verbs.WRAtomicCmpAndSwp, 0x0102030405060708, 0x0102030405060709, 7, 0x0102030405060708},
	} {
		set(c.before)
		wr := a.rdma(c.op, 0, b, 0, 8)
		wr.CompareAdd, wr.Swap = c.arg, c.swap
		t.must(qa.PostSend(wr))
		same(t, "byte_len", t.good(a.sendCQ, 1)[0].ByteLen, 8)
		if word(a) != c.before || word(b) != c.result {
			t.Errorf("%v of %#x with %#x, %#x: returned %#x, left %#x", c.op, c.before, c.arg, c.swap, word(a), word(b))
		}
	}
}

func rnrOnly(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, &verbs.ConnectOptions{Timeout: 22, RNRRetry: 1, MinRNRTimer: 1})
	t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 0, b, 0, 10))) // needs no receive
	t.good(a.sendCQ, 1)
	t.must(qa.PostSend(a.send(1, 0, 10)))
	same(t, "a SEND without a receive", t.poll(a.sendCQ, 1)[0].Status, verbs.WCRNRRetryExcErr)
	t.is(qb, verbs.QPSRTS)
	b.noEvent("only the requester failed")
}

func silentRead(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qb.PostRecv(b.recv(1, 0, 100)))
	a.blank()
	t.must(qa.PostSend(a.rdma(verbs.WRRDMARead, 1, b, 300, 5000)))
	same(t, "byte_len", t.good(a.sendCQ, 1)[0].ByteLen, 5000)
	t.equal("the data read", a.buf[300:5300], b.buf[300:5300])
	if !untouched(a.buf[:300]) || !untouched(a.buf[5300:]) {
		t.Error("the READ wrote outside its buffer")
	}
	t.silent("a READ raises no completion at the responder", b.rcvQ, b.sendCQ, a.rcvQ)
	b.noEvent("a READ raises no event")
}

func boundaries(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, &verbs.ConnectOptions{MTU: verbs.MTU256})
		sizes := []int{3000, 0, 1, 256, 257, 5000}
		b.blank()
		for i := range sizes {
			t.must(qb.PostRecv(b.recv(uint64(i), 8192*i, 8000)))
		}
		for i, n := range sizes {
			t.must(qa.PostSend(a.send(uint64(i), 100*i, n)))
		}
		for i, wc := range t.good(b.rcvQ, len(sizes)) {
			same(t, "wr_id", wc.WRID, uint64(i))
			same(t, "byte_len", wc.ByteLen, uint32(sizes[i]))
			t.equal("message", b.buf[8192*i:8192*i+sizes[i]], a.buf[100*i:100*i+sizes[i]])
			if !untouched(b.buf[8192*i+sizes[i] : 8192*(i+1)]) {
				t.Errorf("bytes behind message %d were written", i)
			}
		}
		t.silent("there were six messages", b.rcvQ)
		t.good(a.sendCQ, len(sizes))
	}
}

func halfAMessage(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	t.must(p.qp.PostRecv(e.recv(1, 0, 4096)))
	data := make([]byte, 2500)
	for i := range data {
		data[i] = byte(i * 3)
	}
	p.request(wire.Fields{Opcode: wire.SendFirst, Payload: data[:1024]})
	p.request(wire.Fields{Opcode: wire.SendMiddle, Payload: data[1024:2048]})
	e.counted("rx_data_bytes", 2048)
	t.silent("the message is not complete", e.rcvQ)
	p.request(wire.Fields{Opcode: wire.SendLast, Payload: data[2048:], AckReq: true})
	same(t, "byte_len", t.good(e.rcvQ, 1)[0].ByteLen, 2500)
	t.equal("the message", e.buf[:2500], data)
	p.expect(wire.Ack)
}

func receiverChooses(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	b.blank()
	t.must(qb.PostRecv(b.recv(1, 12345, 100)))
	wr := a.send(0, 0, 100)
	wr.RemoteAddr, wr.RKey = b.mr.Addr(), b.mr.RKey() // ignored in a SEND
	t.must(qa.PostSend(wr))
	t.good(b.rcvQ, 1)
	t.equal("the message", b.buf[12345:12445], a.buf[:100])
	if !untouched(b.buf[:12345]) || !untouched(b.buf[12445:]) {
		t.Error("the SEND wrote outside its receive")
	}
}

func immediateOutOfBand(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		b.blank()
		t.must(qb.PostRecv(b.recv(1, 0, 100), b.recv(2, 200, 100)))
		imm := a.send(0, 0, 10)
		imm.Opcode, imm.ImmData = verbs.WRSendWithImm, 0x11223344
		write := a.rdma(verbs.WRRDMAWriteWithImm, 0, b, 400, 10)
		write.ImmData = 0xfffefdfc
		t.must(qa.PostSend(imm, write))
		wcs := t.good(b.rcvQ, 2)
		same(t, "immediate of the SEND", wcs[0].ImmData, 0x11223344)
		same(t, "immediate of the WRITE", wcs[1].ImmData, 0xfffefdfc)
		for _, wc := range wcs {
			same(t, "flags", wc.WCFlags, verbs.WCWithImm)
		}
		if !untouched(b.buf[10:400]) || !untouched(b.buf[410:]) {
			t.Error("memory beside the data was written")
		}
	}
}

func silentWrite(t *T) {
	for _, typ := range []verbs.QPType{verbs.QPTypeRC, verbs.QPTypeUC} {
		a, b := t.ends()
		qa, qb := connect(a, b, typ, nil)
		t.must(qb.PostRecv(b.recv(1, 0, 100)))
		b.blank()
		t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 0, b, 1000, 5000)))
		t.good(a.sendCQ, 1)
		b.counted("rx_data_bytes", 5000)
		t.silent("a WRITE raises no completion at the responder", b.rcvQ, b.sendCQ)
		t.equal("the data written", b.buf[1000:6000], a.buf[1000:6000])
		if !untouched(b.buf[:1000]) || !untouched(b.buf[6000:]) {
			t.Error("the WRITE wrote outside its range")
		}
		t.must(qa.PostSend(a.rdma(verbs.WRRDMAWriteWithImm, 0, b, 0, 1)))
		same(t, "opcode", t.good(b.rcvQ, 1)[0].Opcode, verbs.WCRecvRDMAWithImm)
	}
}

func rnrOnTheWire(t *T) {
	e := t.end()
	p := e.rawPeer(verbs.QPTypeRC, slow)
	for _, f := range []wire.Fields{
		{Opcode: wire.SendOnly, AckReq: true},
		{Opcode: wire.WriteOnlyImm, AckReq: true},
	} {
		p.put(p.packet(f).Build())
		got := p.expect(wire.Ack)
		if !wire.AETH([]byte{got.Syndrome}).IsRNR() || got.PSN != p.psn {
			t.Errorf("%v was answered with syndrome %#x of PSN %#x, want RNR NAK of %#x", f.Opcode, got.Syndrome, got.PSN, p.psn)
		}
	}
	t.is(p.qp, verbs.QPSRTS)
	t.must(p.qp.PostRecv(e.recv(1, 0, 10)))
	p.request(wire.Fields{Opcode: wire.SendOnly, AckReq: true})
	same(t, "syndrome", p.expect(wire.Ack).Syndrome, wire.SynAck)
}

func addressing(t *T) {
	a, b := t.ends()
	c := t.end()
	// One UD QP reaches two others, each by its AH.
	qa := a.qp(verbs.QPTypeUD, nil)
	t.must(qa.Connect(verbs.QPInfo{}, nil))
	for _, e := range []*end{b, c} {
		q := e.qp(verbs.QPTypeUD, nil)
		t.must(q.Connect(verbs.QPInfo{}, nil))
		t.must(q.PostRecv(e.recv(1, 0, 100)))
		t.must(qa.PostSend(a.datagram(qa, q, a.send(0, 0, 10))))
		same(t, "src_qp", t.good(e.rcvQ, 1)[0].SrcQP, qa.QPN())
	}
	// A connected QP needs no AH and ignores one.
	qr, qb := connect(a, b, verbs.QPTypeRC, nil)
	t.must(qb.PostRecv(b.recv(1, 0, 100)))
	wr := a.datagram(qa, qb, a.send(0, 0, 10))
	wr.RemoteQPN = 1
	t.must(qr.PostSend(wr))
	t.good(b.rcvQ, 1)
}

func affiliated(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	other := closing(t, get(b.ctx.Device().Open())(t))
	wr := a.rdma(verbs.WRRDMAWrite, 0, b, 0, 8)
	wr.RKey++
	t.must(qa.PostSend(wr))
	if ev := b.event(); ev.QP != qb || ev.Type != verbs.EventQPAccessErr {
		t.Errorf("event %+v", ev)
	}
	b.noEvent("the event was raised already")
	ev, err := other.TryGetAsyncEvent()
	ev.Ack()
	t.refused("an event at another context of the device", err, verbs.EAGAIN)
	// Events of SRQs and CQs; the CQ belongs to the other context.
	srq := b.srq(4)
	t.arm(srq, 1)
	b.limitReached(srq)
	o := t.endOf(other)
	o.noEvent("the SRQ belongs to the other context")
	small := o.cq(1, nil)
	qa, qo := onCQ(a, o, small)
	for i := range small.Cap() + 1 {
		t.must(qo.PostRecv(o.recv(uint64(i), 0, 10)))
		t.must(qa.PostSend(a.send(1, 0, 1)))
	}
	if ev := o.event(); ev.Type != verbs.EventCQErr || ev.CQ != small {
		t.Errorf("event %+v", ev)
	}
	if ev := o.event(); ev.Type != verbs.EventQPFatal || ev.QP != qo {
		t.Errorf("event %+v", ev)
	}
	b.noEvent("the CQ belongs to the other context")
}

func allFailAfterAnError(t *T) {
	a, b := t.ends()
	qa, _ := connect(a, b, verbs.QPTypeRC, nil)
	bad := a.send(1, 0, 8)
	bad.SGList[0].LKey++
	t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 0, b, 0, 8), bad, a.rdma(verbs.WRRDMAWrite, 2, b, 0, 8)))
	wcs := t.poll(a.sendCQ, 3)
	same(t, "before the error", wcs[0].Status, verbs.WCSuccess)
	same(t, "the error", wcs[1].Status, verbs.WCLocProtErr)
	same(t, "after it", wcs[2].Status, verbs.WCWRFlushErr)
	t.is(qa, verbs.QPSErr)
	t.must(qa.PostSend(a.rdma(verbs.WRRDMAWrite, 3, b, 0, 8)))
	same(t, "later", t.poll(a.sendCQ, 1)[0].Status, verbs.WCWRFlushErr)
}

func buffersReusable(t *T) {
	a, b := t.ends()
	qa, qb := connect(a, b, verbs.QPTypeRC, nil)
	for i := range 20 {
		t.must(qb.PostRecv(b.recv(0, 0, 3000)))
		for k := range 3000 {
			a.buf[k] = byte(i + k)
		}
		t.must(qa.PostSend(a.send(0, 0, 3000)))
		t.good(a.sendCQ, 1)
		clear(a.buf[:3000]) // the device does not read it again
		t.good(b.rcvQ, 1)
		for k := range 3000 {
			if b.buf[k] != byte(i+k) {
				t.Fatalf("message %d changed at byte %d", i, k)
			}
		}
		clear(b.buf[:3000]) // the device does not write it again
		t.must(qa.PostSend(a.rdma(verbs.WRRDMARead, 0, b, 0, 3000)))
		t.good(a.sendCQ, 1)
		if a.buf[0] != 0 || b.buf[2999] != 0 {
			t.Fatal("a buffer was written after its completion")
		}
	}
}
